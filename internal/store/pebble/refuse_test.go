package pebble

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// wantError wants an error with a code whose text contains the words.
func wantError(t *testing.T, err error, code plimsoll.Code, words ...string) {
	t.Helper()
	var e *plimsoll.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want an error of code %v", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

const holdVariable = "PEBBLE_TEST_HOLD"

// TestHoldDirectory is run by TestDirectoryInUse in a process of its own.
func TestHoldDirectory(t *testing.T) {
	dir, ok := os.LookupEnv(holdVariable)
	if !ok {
		t.Skip("runs only inside of TestDirectoryInUse")
	}
	s := mustOpen(t, Config{Dir: dir})
	fmt.Println("open")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil {
		t.Error("read a line where the end was expected")
	}
	mustClose(t, s)
}

func TestDirectoryInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command(os.Args[0], "-test.run=^TestHoldDirectory$")
	cmd.Env = append(os.Environ(), holdVariable+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the holder said %q (%v)", line, err)
	}
	_, err = Open(Config{Dir: dir})
	wantError(t, err, plimsoll.CodeAlreadyRunning, dir, fmt.Sprintf("process %d", cmd.Process.Pid), "stop it")
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	mustClose(t, mustOpen(t, Config{Dir: dir}))
}

func TestDirectoryInUseUnderAnotherName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, Config{Dir: dir})
	defer mustClose(t, s)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Dir: link})
	wantError(t, err, plimsoll.CodeAlreadyRunning, dir, "this process")
}

func TestDirectoryIsNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := Open(Config{Dir: dir})
		wantError(t, err, plimsoll.CodeInvalid, dir, "is a file", "choose another path")
	}
	if data, err := os.ReadFile(file); string(data) != "mine" {
		t.Errorf("the file holds %q now (%v)", data, err)
	}
}

func TestDirectoryNotWritable(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		for name, op := range map[string]errorfs.OpKind{
			"lock": errorfs.OpLock, "create": errorfs.OpCreate, "mkdir": errorfs.OpMkdirAll,
		} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
					if o.Kind == op {
						return &os.PathError{Op: name, Path: o.Path, Err: errno}
					}
					return nil
				}))
				_, err := Open(Config{Dir: "data/store", FS: fs})
				wantError(t, err, plimsoll.CodeDenied, "data/store", "not writable")
			})
		}
	}
	t.Run("for real", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Config{Dir: dir})
		wantError(t, err, plimsoll.CodeDenied, dir, "not writable")
	})
}

func TestNoSpaceLeft(t *testing.T) {
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind == errorfs.OpFileWrite {
			return &os.PathError{Op: "write", Path: o.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	_, err := Open(Config{Dir: "store", FS: fs})
	wantError(t, err, plimsoll.CodeExhausted, "store", "no space left")
}

// fill makes a store with tables, a log and a witness, and returns its content. The store is
// closed.
func fill(t *testing.T, fs vfs.FS, batches int, seed uint64) storetest.Content {
	t.Helper()
	return fillWith(t, small(fs, "store"), batches, seed)
}

// fillLog makes a store whose content is in one log.
func fillLog(t *testing.T, fs vfs.FS, batches int, seed uint64) storetest.Content {
	t.Helper()
	return fillWith(t, Config{Dir: "store", FS: fs}, batches, seed)
}

func fillWith(t *testing.T, cfg Config, batches int, seed uint64) storetest.Content {
	t.Helper()
	s := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(seed, 1))
	epoch := lead(t, s)
	var m storetest.Model
	for r := uint64(1); r <= uint64(batches); r++ {
		b := storetest.RandomBatch(rng, epoch, r, 400)
		p, err := s.Commit(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		m.Apply(b)
	}
	mustClose(t, s)
	return m.Content()
}

func TestNewerFormats(t *testing.T) {
	t.Run("of the store, told by the witness", func(t *testing.T) {
		fs := vfs.NewMem()
		fill(t, fs, 5, 1)
		w := encodeWitness(meta{})
		copy(w[8:], []byte{0, 0, 0, 9})
		copy(w[12:], crcOf(w[:12]))
		writeFile(t, fs, "store/"+witnessName, append(w, "and more, in a layout of the future"...))
		_, err := Open(small(fs, "store"))
		wantError(t, err, plimsoll.CodeConflict, "store", "newer version", "version 9", "up to 1")
	})
	t.Run("of the store, told by its own record", func(t *testing.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, small(fs, "store"))
		if err := s.db.Set(metaKey, []byte{0, 0, 0, 8, 1}, lsm.Sync); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		_, err := Open(small(fs, "store"))
		wantError(t, err, plimsoll.CodeConflict, "store", "newer version", "version 8", "up to 1")
	})
	t.Run("of Pebble", func(t *testing.T) {
		fs := vfs.NewMem()
		fill(t, fs, 5, 1)
		writeFile(t, fs, "store/marker.format-version.999999.999", nil)
		before := snapshot(t, fs)
		_, err := Open(small(fs, "store"))
		wantError(t, err, plimsoll.CodeConflict, "store", "newer version", "version 999")
		unchanged(t, fs, before)
	})
	t.Run("with a kind of record unknown here", func(t *testing.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, small(fs, "store"))
		if err := s.db.Set([]byte{wire.NumKinds, 'k'}, []byte("v"), lsm.Sync); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		_, err := Open(small(fs, "store"))
		wantError(t, err, plimsoll.CodeConflict, "newer version", "kind")
	})
}

// A file that is cut short, removed or corrupted is refused by name, and the directory is not
// changed.
func TestDamagedFiles(t *testing.T) {
	cut := func(data []byte) []byte { return data[:len(data)/2] }
	spoil := func(data []byte) []byte {
		for i := range data[len(data)/2:] {
			data[len(data)/2+i] ^= 0x5a
		}
		return data
	}
	junk := func(data []byte) []byte { return []byte(strings.Repeat("junk", len(data)/4+1)) }
	empty := func([]byte) []byte { return nil }
	for _, tc := range []struct {
		pattern string
		how     string
		change  func([]byte) []byte
		says    string
	}{
		{"*.sst", "cut", cut, "backup"},
		{"*.sst", "spoilt", spoil, "backup"},
		{"*.sst", "junk", junk, "backup"},
		{"*.sst", "empty", empty, "backup"},
		{"*.sst", "gone", nil, "backup"},
		{"*.log", "cut", cut, "goes on from revision"},
		{"*.log", "spoilt", spoil, "goes on from revision"},
		{"*.log", "junk", junk, "goes on from revision"},
		{"*.log", "empty", empty, "goes on from revision"},
		{"MANIFEST-*", "cut", cut, "left as they are"},
		{"MANIFEST-*", "spoilt", spoil, "left as they are"},
		{"MANIFEST-*", "junk", junk, "left as they are"},
		{"MANIFEST-*", "gone", nil, "backup"},
		{"OPTIONS-*", "junk", junk, "holds no data"},
		{"WITNESS", "cut", cut, "holds no data"},
		{"WITNESS", "junk", junk, "holds no data"},
		{"WITNESS", "empty", empty, "holds no data"},
		{"marker.manifest.*", "gone", nil, "missing"},
	} {
		t.Run(tc.pattern+" "+tc.how, func(t *testing.T) {
			fs := vfs.NewMem()
			if tc.pattern == "*.log" {
				fillLog(t, fs, 150, 2)
			} else {
				fill(t, fs, 150, 2)
			}
			path := newest(t, fs, tc.pattern)
			if tc.change == nil {
				if err := fs.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				writeFile(t, fs, path, tc.change(snapshot(t, fs)[path]))
			}
			before := snapshot(t, fs)
			_, err := Open(small(fs, "store"))
			name := fs.PathBase(path)
			if tc.pattern == "marker.manifest.*" {
				name = tc.pattern
			}
			wantError(t, err, plimsoll.CodeCorrupt, "store", name, tc.says, "left as they")
			unchanged(t, fs, before)
		})
	}
}

func TestLostLogIsNoticed(t *testing.T) {
	fs := vfs.NewMem()
	fillLog(t, fs, 150, 3)
	if err := fs.Remove(newest(t, fs, "*.log")); err != nil {
		t.Fatal(err)
	}
	_, err := Open(small(fs, "store"))
	wantError(t, err, plimsoll.CodeCorrupt, "revision 150 of epoch 1 was stored", ".log")
}

func TestLostEpochIsNoticed(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, small(fs, "store"))
	lead(t, s)
	mustClose(t, s)
	before := snapshot(t, fs)
	s = mustOpen(t, small(fs, "store"))
	lead(t, s)
	mustClose(t, s)
	witness := snapshot(t, fs)["store/"+witnessName]
	restore(t, fs, before)
	writeFile(t, fs, "store/"+witnessName, witness)
	_, err := Open(small(fs, "store"))
	wantError(t, err, plimsoll.CodeCorrupt, "of epoch 2 was stored")
}

// The remedy that the error names works: without the witness, the store opens with the rest, which
// is a whole revision.
func TestWhatIsLeftCanBeSaved(t *testing.T) {
	fs := vfs.NewMem()
	fillLog(t, fs, 150, 4)
	path := newest(t, fs, "*.log")
	data := snapshot(t, fs)[path]
	writeFile(t, fs, path, data[:len(data)/2])
	_, err := Open(small(fs, "store"))
	wantError(t, err, plimsoll.CodeCorrupt, "remove store/"+witnessName)
	if err := fs.Remove("store/" + witnessName); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, small(fs, "store"))
	defer mustClose(t, s)
	got := read(t, s)
	if got.Revision == 0 || got.Revision >= 150 ||
		!strings.Contains(err.Error(), fmt.Sprintf("goes on from revision %d", got.Revision)) {
		t.Errorf("the store went on from revision %d, the error was: %v", got.Revision, err)
	}
}

// A crash leaves a log whose end was never acknowledged. That is no damage.
func TestTornTailIsTolerated(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, Config{Dir: "store", FS: fs})
	epoch := lead(t, s)
	for r := uint64(1); r <= 10; r++ {
		mustCommit(t, s, epoch, r)
	}
	want := read(t, s)
	crashed := snapshot(t, fs) // as after the death of the process, before the end of the log was written
	mustClose(t, s)
	log := ""
	for _, path := range slices.Sorted(maps.Keys(crashed)) {
		if strings.HasSuffix(path, ".log") {
			log = path
		}
	}
	for _, tail := range [][]byte{nil, make([]byte, 100_000), []byte("torn"), crashed[log][:200]} {
		restore(t, fs, crashed)
		writeFile(t, fs, log, slices.Concat(crashed[log], tail))
		s := mustOpen(t, Config{Dir: "store", FS: fs})
		if diff := cmp.Diff(want, read(t, s)); diff != "" {
			t.Errorf("with %d bytes behind the end of the log (-want +got):\n%s", len(tail), diff)
		}
		mustClose(t, s)
	}
}

// After any damage to one file, the store is complete or refused: it never lacks an acknowledged
// batch, and never panics.
func TestRandomDamage(t *testing.T) {
	seed := testrun.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := vfs.NewMem()
	want := fill(t, fs, 150, seed)
	healthy := snapshot(t, fs)
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(healthy)), func(p string) bool { return len(healthy[p]) == 0 })
	refused := 0
	for round := range 200 {
		path := paths[rng.IntN(len(paths))]
		what, data := damage(rng, slices.Clone(healthy[path]))
		restore(t, fs, healthy)
		writeFile(t, fs, path, data)
		got, err := openAndRead(small(fs, "store"))
		switch {
		case err != nil:
			refused++
			if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
				t.Fatalf("round %d, %s %s: got %v, want code %v", round, path, what, err, plimsoll.CodeCorrupt)
			}
		case !cmp.Equal(want, got):
			t.Fatalf("round %d, %s %s: the store opened and holds something else", round, path, what)
		}
	}
	t.Logf("%d of 200 were refused", refused)
	if refused < 50 {
		t.Errorf("only %d of 200 damaged stores were refused", refused)
	}
}

// damage corrupts data in one of the ways in which disks and people do.
func damage(rng *rand.Rand, data []byte) (what string, spoilt []byte) {
	at := rng.IntN(len(data))
	switch rng.IntN(4) {
	case 0:
		data[at] ^= 1 << rng.IntN(8)
		return fmt.Sprintf("bit flipped at %d", at), data
	case 1:
		return fmt.Sprintf("cut at %d", at), data[:at]
	case 2:
		end := min(len(data), at+1+rng.IntN(4096))
		clear(data[at:end])
		return fmt.Sprintf("zeroed from %d to %d", at, end), data
	default:
		end := min(len(data), at+1+rng.IntN(64))
		for i := at; i < end; i++ {
			data[i] = byte(rng.Uint32())
		}
		return fmt.Sprintf("junk from %d to %d", at, end), data
	}
}

func openAndRead(cfg Config) (storetest.Content, error) {
	s, err := Open(cfg)
	if err != nil {
		return storetest.Content{}, err
	}
	content, err := storetest.Read(s)
	return content, errors.Join(err, s.Close())
}

func read(t *testing.T, s store.Store) storetest.Content {
	t.Helper()
	c, err := storetest.Read(s)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}
