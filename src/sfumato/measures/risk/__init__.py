"""How likely an attacker is to find a person: re-identification, journalist, population uniques, Safe Harbor."""
