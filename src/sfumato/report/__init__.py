"""Reports for people: summarise, plot, fill a template."""
