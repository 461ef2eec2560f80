package vfs

// MakeNamed is Make on a file system that knows no files without names.
var MakeNamed = makeNamed
