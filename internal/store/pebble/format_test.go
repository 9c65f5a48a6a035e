package pebble

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

var update = flag.Bool(
	"update", false, "write testdata/format1 anew; only right if no release ever wrote format 1 otherwise",
)

const (
	format1     = "testdata/format1"
	format1Last = 120
	format1Keep = 100
	format1Node = "node"
	format1Size = 300
)

// A store that was written by the first version of the format opens for ever.
func TestFormat1Opens(t *testing.T) {
	if *update {
		writeFormat1(t)
	}
	fs := vfs.NewMem()
	entries, err := os.ReadDir(format1)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(format1, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files["store/"+e.Name()] = data
	}
	restore(t, fs, files)
	want := storetest.Content{Revision: format1Last, Time: format1Last}
	for r := uint64(format1Keep); r <= format1Last; r++ {
		want.Chunks = append(want.Chunks, storetest.Chunk{Revision: r, FirstID: r, Count: 1, Data: "event"})
	}
	want.Records = []storetest.Record{
		{Kind: wire.KindNode, Key: format1Node, Value: string(bytes.Repeat([]byte{format1Last}, format1Size))},
	}
	s := mustOpen(t, Config{Dir: "store", FS: fs})
	defer mustClose(t, s)
	if diff := cmp.Diff(want, read(t, s)); diff != "" {
		t.Errorf("format 1 reads differently (-want +got):\n%s", diff)
	}
	if epoch := lead(t, s); epoch != 3 {
		t.Errorf("the next epoch is %d, want 3", epoch)
	}
}

func writeFormat1(t *testing.T) {
	t.Helper()
	fs := vfs.NewMem()
	s := mustOpen(t, small(fs, "store"))
	lead(t, s)
	epoch := lead(t, s)
	for r := uint64(1); r <= format1Last; r++ {
		mustCommit(t, s, epoch, r)
	}
	if err := s.TrimEvents(format1Keep); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if err := os.RemoveAll(format1); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(format1, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range snapshot(t, fs) {
		if err := os.WriteFile(filepath.Join(format1, filepath.Base(name)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
