"""Operations with permission checks, called by every protocol once it has decoded a request."""
