//go:build !race

package ownership

// racing says that the race detector makes everything some ten times slower. There are no goroutines here to watch.
const racing = false
