"""Other libraries beside Forebay, one module each; each is imported only by who uses that library."""
