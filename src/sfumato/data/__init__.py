"""Tables and what is known of them: schema, files, integer codes, embedded data sets."""
