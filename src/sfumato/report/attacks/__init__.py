"""The page of attacks: what an attacker gains over guessing."""
