package runtimeenv

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// maxStaged bounds what is copied for one folder: more is nearly always data that was not meant to travel.
var maxStaged int64 = 1 << 30

// item is a file or link to be copied.
type item struct {
	rel  string
	mode fs.FileMode
	size int64
	link string // where a symbolic link points
}

// stage copies a folder, a .zip or a .whl into the session, under its content's hash, and returns where. A folder keeps its own name, which for
// a module is the name it is imported by.
func stage(ctx context.Context, base Base, path, field string, excludes []string) (string, error) {
	src := resolve(base, path)
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("runtime_env: %s %s: %w", field, path, err)
	}
	fi, err := os.Stat(src)
	if err != nil {
		return fail(err)
	}
	root := filepath.Join(base.SessionDir, "runtime_env")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fail(err)
	}
	switch ext := strings.ToLower(filepath.Ext(src)); {
	case fi.IsDir():
		items, err := collect(src, excludes)
		if err != nil {
			return fail(err)
		}
		hash, err := hashItems(ctx, src, items)
		if err != nil {
			return fail(err)
		}
		dir := filepath.Join(root, hash, filepath.Base(src))
		err = once(filepath.Join(root, hash), func(part string) error {
			return copyItems(ctx, src, filepath.Join(part, filepath.Base(src)), items)
		})
		if err != nil {
			return fail(err)
		}
		return dir, nil
	case ext == ".zip" || ext == ".whl":
		hash, err := hashFile(src)
		if err != nil {
			return fail(err)
		}
		dir := filepath.Join(root, hash)
		err = once(dir, func(part string) error { return unzip(ctx, src, part) })
		if err != nil {
			return fail(err)
		}
		if field == "working_dir" {
			dir = onlyFolder(dir)
		}
		return dir, nil
	case field == "py_modules" && ext == ".py":
		items := []item{{rel: filepath.Base(src), mode: fi.Mode().Perm(), size: fi.Size()}}
		hash, err := hashItems(ctx, filepath.Dir(src), items)
		if err != nil {
			return fail(err)
		}
		dir := filepath.Join(root, hash)
		err = once(dir, func(part string) error { return copyItems(ctx, filepath.Dir(src), part, items) })
		if err != nil {
			return fail(err)
		}
		return dir, nil
	}
	return fail(fmt.Errorf("%w: it has to be a folder or a .zip%s", ErrSpec, map[bool]string{true: ", .whl or .py"}[field == "py_modules"]))
}

// once makes a folder unless it is there: beside it, then renamed, so that it is whole or absent.
func once(dir string, fill func(part string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), ".part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	if err := fill(part); err != nil {
		return err
	}
	err = os.Rename(part, dir)
	if errors.Is(err, fs.ErrExist) {
		err = nil // somebody else was faster with the same
	}
	return err
}

// collect lists what is to be copied: all but what excludes, and the .gitignore files on the way, name.
func collect(root string, excludes []string) ([]item, error) {
	var items []item
	var total int64
	byTop := map[string]int64{}
	rules := map[string]*ignore{".": newIgnore(excludes)}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if rel != "." && (d.Name() == ".git" || ignored(rules, rel, d.IsDir())) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			if b, err := os.ReadFile(filepath.Join(path, ".gitignore")); err == nil {
				own := newIgnore(strings.Split(string(b), "\n"))
				if top := rules[rel]; top != nil {
					own.rules = append(own.rules, top.rules...) // excludes have the last word
				}
				rules[rel] = own
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			items = append(items, item{rel: rel, mode: fs.ModeDir | fi.Mode().Perm()})
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		it := item{rel: rel, mode: fi.Mode().Perm(), size: fi.Size()}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			if it.link, err = os.Readlink(path); err != nil {
				return err
			}
			it.size = 0
		case !fi.Mode().IsRegular():
			return nil // sockets and the like cannot be copied
		}
		total += it.size
		top, _, _ := strings.Cut(rel, string(filepath.Separator))
		byTop[top] += it.size
		items = append(items, it)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if total > maxStaged {
		return nil, fmt.Errorf("%w: it holds %d MiB, and at most %d MiB are copied to workers; most of it is in %s: leave out what workers do not need with excludes",
			ErrSpec, total>>20, maxStaged>>20, largest(byTop))
	}
	return items, nil
}

func largest(by map[string]int64) string {
	names := make([]string, 0, len(by))
	for n := range by {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool {
		if by[names[i]] != by[names[j]] {
			return by[names[i]] > by[names[j]]
		}
		return names[i] < names[j]
	})
	var out []string
	for _, n := range names[:min(3, len(names))] {
		out = append(out, fmt.Sprintf("%s (%d MiB)", n, by[n]>>20))
	}
	return strings.Join(out, ", ")
}

func hashItems(ctx context.Context, root string, items []item) (string, error) {
	h := sha256.New()
	for _, it := range items {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		fmt.Fprintf(h, "%q %o %d %q\n", it.rel, it.mode, it.size, it.link)
		if it.mode.IsRegular() && it.link == "" {
			if err := hashInto(h, filepath.Join(root, it.rel)); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func hashFile(path string) (string, error) {
	h := sha256.New()
	if err := hashInto(h, path); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func hashInto(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func copyItems(ctx context.Context, src, dst string, items []item) error {
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return err
	}
	for _, it := range items {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		to := filepath.Join(dst, it.rel)
		var err error
		switch {
		case it.mode.IsDir():
			err = os.MkdirAll(to, it.mode.Perm()|0o700)
		case it.link != "":
			err = os.Symlink(it.link, to)
		default:
			err = copyFile(filepath.Join(src, it.rel), to, it.mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeFile(in, to, mode, -1)
}

// writeFile copies at most limit bytes (-1: all), and fails if there are more.
func writeFile(in io.Reader, to string, mode fs.FileMode, limit int64) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()|0o600)
	if err != nil {
		return err
	}
	if limit >= 0 {
		var n int64
		if n, err = io.Copy(out, io.LimitReader(in, limit+1)); err == nil && n > limit {
			err = fmt.Errorf("%w: it unpacks to more than %d MiB", ErrSpec, maxStaged>>20)
		}
	} else {
		_, err = io.Copy(out, in)
	}
	return errors.Join(err, out.Close())
}

// unzip unpacks an archive. Names that would leave the folder are an error.
func unzip(ctx context.Context, src, dst string) error {
	z, err := zip.OpenReader(src)
	if err != nil {
		return err
	}
	defer z.Close()
	left := maxStaged
	for _, f := range z.File {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("%w: the archive holds %q, which lies outside of it", ErrSpec, f.Name)
		}
		to := filepath.Join(dst, f.Name)
		if f.FileInfo().IsDir() {
			if err := os.MkdirAll(to, 0o700); err != nil {
				return err
			}
			continue
		}
		if !f.Mode().IsRegular() {
			return fmt.Errorf("%w: the archive holds %q, which is neither file nor folder", ErrSpec, f.Name)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		err = writeFile(in, to, f.Mode(), left)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		left -= int64(f.UncompressedSize64)
	}
	return nil
}

// onlyFolder steps into the one folder that an archive of a folder holds.
func onlyFolder(dir string) string {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 1 && entries[0].IsDir() {
		return filepath.Join(dir, entries[0].Name())
	}
	return dir
}
