"""Read and write files and databases: whole files or nothing, and strangers' files at a bounded cost."""
