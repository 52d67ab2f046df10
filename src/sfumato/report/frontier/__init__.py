"""The page of the privacy-utility frontier."""
