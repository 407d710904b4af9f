// Which manuals there are; docs/versions.py writes it anew where it builds several.
window.VERSIONS = [];
