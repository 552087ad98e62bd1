package objectstore

// Used is how many bytes of the arena objects have.
func (s *Store) Used() int64 { return s.used() }

// Unmovable is how many of the bytes in use cannot be given up by moving objects to disk: those of objects that are pinned or being
// written, and all where nothing can be spilled.
func (s *Store) Unmovable() int64 {
	if s.WhyUnmovable() != "" {
		return s.used()
	}
	s.CallInUsed()
	var n int64
	for e := s.held.first; e != nil; e = e.next {
		if e.pins > 0 || !e.spilling {
			n += e.span.size
		}
	}
	return n
}

// WhyUnmovable says why nothing can be spilled; empty where it can.
func (s *Store) WhyUnmovable() string {
	switch {
	case len(s.opts.SpillDirs) == 0:
		return "there is no spill directory"
	case s.diskErr != nil:
		return s.diskErr.Error()
	}
	return ""
}
