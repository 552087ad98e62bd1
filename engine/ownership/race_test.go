//go:build race

package ownership

const racing = true
