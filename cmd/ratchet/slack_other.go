//go:build !linux

package main

// coarsen is for Linux.
func coarsen() {}
