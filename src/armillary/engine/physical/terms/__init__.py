"""Terms of interference and overhead in a step (`armillary.platform.terms`), each for itself."""
