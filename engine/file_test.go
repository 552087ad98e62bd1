package engine_test

import (
	"errors"
	"testing"

	"github.com/raygo/raygo/engine"

	"golang.org/x/sys/unix"
)

func TestReaderWithoutDescriptorsKeepsNoPin(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) { o.ObjectStoreMemory = 4 << 20 })
	files := func() int64 { return asInt(r.ask("store.stats", nil)["files"]) }
	ref, err := r.c.Put(ctx(t), make([]byte, 6<<20)) // larger than the store
	if err != nil || files() < 6<<20 {
		t.Fatal(err, files())
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	view, err := r.c.GetView(ctx(t), ref)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
		t.Fatal(e)
	}
	if view != nil || !errors.Is(err, unix.EMFILE) {
		t.Fatalf("%v, want that there are too many open files", err)
	}
	if view, err = r.c.GetView(ctx(t), ref); err != nil || len(view.Blob) < 6<<20 {
		t.Fatal(err)
	}
	view.Release()
	ref.Release()
	eventually(t, "its file is gone", func() bool { return files() == 0 })
}
