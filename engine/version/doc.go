// Package version says which version this engine is of. Library, binding and package must agree: they refuse each other otherwise and name both.
package version
