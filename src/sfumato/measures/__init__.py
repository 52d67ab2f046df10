"""One counting pass, nine privacy models as pure functions of it, and the risk."""
