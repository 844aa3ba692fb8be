"""Operations by resource, free of transport: request struct in, response struct out, Forebay errors."""
