"""The proof that anyone can run: what is promised, held against what has happened."""
