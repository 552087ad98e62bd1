package objectstore

import (
	"slices"

	"golang.org/x/sys/unix"
)

// drop gives a record's space back: whole blocks at once where the file system can, the file with its last record. It returns the record's
// segment when that is to be compacted.
func (d *disk) drop(rec *record) *segment {
	d.mu.Lock()
	defer d.mu.Unlock()
	seg := rec.seg
	delete(seg.records, rec)
	seg.live -= rec.size
	seg.stuck = false // it may have been because of this one
	if len(seg.records) == 0 {
		if seg.dir.current == seg {
			seg.dir.current = nil
		}
		d.closeDead(seg)
		return nil
	}
	from, to := roundUp(rec.off, block), (rec.off+rec.size)&^(block-1)
	if rec.size >= packUnder {
		to = roundUp(rec.off+rec.size, block) // its blocks are its own
	}
	if from < to && !seg.noPunch {
		seg.users++
		d.mu.Unlock()
		err := unix.Fallocate(seg.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		d.mu.Lock()
		seg.users--
		if err == nil {
			seg.taken -= to - from
			seg.dir.used -= to - from
		} else {
			seg.noPunch = true // compaction gets it back
		}
		seg.dir.look()
	}
	if seg.wasteful() {
		return seg
	}
	return nil
}

// wasteful tells whether most of what a segment takes up is dead.
func (seg *segment) wasteful() bool {
	return seg.taken-seg.live > max(seg.live, wasteKept) && !seg.stuck && len(seg.records) > 0
}

// compact moves a batch of a segment's living records behind those of others; with its last record a segment goes. It tells whether there
// is more to do.
func (d *disk) compact(seg *segment) bool {
	d.mu.Lock()
	if !seg.wasteful() {
		d.mu.Unlock()
		return false
	}
	if seg.dir.current == seg {
		seg.dir.current = nil
	}
	all := make([]*record, 0, len(seg.records))
	for rec := range seg.records {
		all = append(all, rec)
	}
	seg.users++
	d.mu.Unlock()
	defer d.unuse(seg)
	slices.SortFunc(all, func(a, b *record) int { return int(a.off - b.off) })
	var items [][]byte
	bytes := int64(0)
	for _, rec := range all {
		if bytes > 0 && bytes+rec.size > ioChunk {
			break
		}
		data := make([]byte, rec.size)
		if sum, err := seg.readAt(rec.off, rec.size, data, false, d.stopping); err != nil || sum != rec.sum {
			// Whoever wants this object will be told. Until it is deleted its segment stays as it is.
			d.mu.Lock()
			seg.stuck = true
			d.mu.Unlock()
			return false
		}
		items = append(items, data)
		bytes += rec.size
	}
	fresh, err := d.writeBatch(items)
	if err != nil {
		return false // no room for a second copy: it is tried again when more has died
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, to := range fresh {
		rec := all[i]
		delete(seg.records, rec)
		seg.live -= rec.size
		delete(to.seg.records, to)
		to.seg.records[rec] = struct{}{}
		rec.seg, rec.off = to.seg, to.off
	}
	return true
}
