"""Local suppression: as few single cells as possible become ``*``."""
