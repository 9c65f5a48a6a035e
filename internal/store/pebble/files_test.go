package pebble

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

func crcOf(b []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// snapshot returns the files of the directory "store" by path.
func snapshot(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		f, err := fs.Open("store/" + name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		files["store/"+name] = data
	}
	return files
}

// restore replaces the content of the directory "store" by these files.
func restore(t *testing.T, fs vfs.FS, files map[string][]byte) {
	t.Helper()
	if err := fs.RemoveAll("store"); err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll("store", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		writeFile(t, fs, p, files[p])
	}
}

func writeFile(t *testing.T, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(data)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// newest returns the last matching file of the directory "store" that is not empty. Markers are
// always empty, so any marker matches.
func newest(t *testing.T, fs vfs.FS, pattern string) string {
	t.Helper()
	files := snapshot(t, fs)
	found := ""
	for _, p := range slices.Sorted(maps.Keys(files)) {
		ok, err := path.Match("store/"+pattern, p)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			found = p
		}
	}
	if found == "" {
		t.Fatalf("no file matches %s", pattern)
	}
	return found
}

func unchanged(t *testing.T, fs vfs.FS, before map[string][]byte) {
	t.Helper()
	if diff := cmp.Diff(before, snapshot(t, fs)); diff != "" {
		t.Errorf("the files were changed (-before +after):\n%s", diff)
	}
}
