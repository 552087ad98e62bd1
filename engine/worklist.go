package engine

// worklist does things that lead to more of their kind: in a loop, and not by recursion, for chains of tasks and values may be long.
type worklist[T any] struct {
	todo    []T
	working bool
}

// add has do run for all of more; for those that are added meanwhile, by do too, before the outermost call returns.
func (l *worklist[T]) add(do func(T), more ...T) {
	l.todo = append(l.todo, more...)
	if l.working {
		return
	}
	l.working = true
	for len(l.todo) > 0 {
		last := len(l.todo) - 1
		x := l.todo[last]
		clear(l.todo[last:])
		l.todo = l.todo[:last]
		do(x)
	}
	if cap(l.todo) > 1024 {
		l.todo = nil
	}
	l.working = false
}
