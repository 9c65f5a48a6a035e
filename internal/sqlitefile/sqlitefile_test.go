package sqlitefile

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// shelf is a kind of file with one table. The packages archive/sqlite and history/sqlite test the
// faults of files.
var shelf = Kind{
	Noun: "shelf", Maker: "the librarian makes it", Application: 7, Format: 1, Schema: "CREATE TABLE book (n INTEGER)",
	Begin: func(c *Conn) error {
		_, err := c.Exec("INSERT INTO book VALUES (1)")
		return err
	},
}

func owner(t *testing.T, path string) *Owner {
	t.Helper()
	o, err := shelf.Own(t.Context(), path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// books returns how many rows a pool sees.
func books(t *testing.T, p *Pool) (n int64) {
	t.Helper()
	err := p.View(t.Context(), func(_ context.Context, v View) error {
		row, err := v.First("SELECT count(*) FROM book")
		if err == nil {
			n, _ = row[0].(int64)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A change is seen when it returns, and one that fails leaves nothing.
func TestAChangeIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shelf.db")
	p := shelf.Read(path)
	err := p.View(t.Context(), func(context.Context, View) error { return nil })
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), "the librarian makes it") {
		t.Errorf("a file that is not there: %v", err)
	}
	o := owner(t, path)
	if n := books(t, p); n != 1 {
		t.Errorf("a new file has %d rows", n)
	}
	refused := errors.New("it is not wanted")
	for i, want := range []error{nil, refused, nil} {
		err := o.Change(t.Context(), func() error {
			if _, err := o.Exec("INSERT INTO book VALUES (2)"); err != nil {
				return err
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	if n := books(t, p); n != 3 {
		t.Errorf("there are %d rows, and two changes were made", n)
	}
	err = p.View(t.Context(), func(_ context.Context, v View) error {
		_, err := v.Exec("INSERT INTO book VALUES (3)")
		return err
	})
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a view writes: %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	err = p.View(t.Context(), func(context.Context, View) error { return nil })
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), "is closed") {
		t.Errorf("a pool that is closed: %v", err)
	}
}

// A file of another kind is refused by name.
func TestAFileOfAnotherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shelf.db")
	owner(t, path)
	other := shelf
	other.Noun, other.Application = "attic", 8
	_, err := other.Own(t.Context(), path, 1<<20)
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "not an attic") {
		t.Errorf("another kind: %v", err)
	}
	newer := shelf
	newer.Format = 2
	_, err = newer.Own(t.Context(), path, 1<<20)
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), "has format 1") {
		t.Errorf("another format: %v", err)
	}
}

func TestAChecksumFindsAChange(t *testing.T) {
	data := Sealed([]byte("a row"))
	if content, ok := Unsealed(data); !ok || !bytes.Equal(content, []byte("a row")) {
		t.Errorf("it comes back as %q, %v", content, ok)
	}
	for i := range data {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		if _, ok := Unsealed(changed); ok {
			t.Errorf("a change of byte %d is not found", i)
		}
		if _, ok := Unsealed(data[:i]); ok {
			t.Errorf("%d of its bytes are taken", i)
		}
	}
}

// sealedShelf is a shelf whose pages have checksums.
var sealedShelf = func() Kind {
	k := shelf
	k.PageSums, k.Application, k.Format = true, 8, 2
	k.Schema = "CREATE TABLE book (n INTEGER, title TEXT); CREATE INDEX titles ON book(title)"
	k.Begin = func(c *Conn) error {
		_, err := c.Exec("INSERT INTO book VALUES (0, '')")
		return err
	}
	return k
}()

// countBooks are queries that read the table, and the index.
var countBooks = []string{
	"SELECT count(n) FROM book NOT INDEXED", "SELECT count(title) FROM book INDEXED BY titles WHERE title >= ''",
}

// sealed makes a file with checksums and so many books, and returns its bytes.
func sealed(t *testing.T, path string, count int) []byte {
	t.Helper()
	o, err := sealedShelf.Own(t.Context(), path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	err = o.Change(t.Context(), func() error {
		for n := 1; n < count; n++ {
			if _, err := o.Exec("INSERT INTO book VALUES (?, ?)", int64(n), strings.Repeat("title ", 5)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, o.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Whichever page has a damaged byte, in a table, in an index or in the header: who reads it is
// told, and no answer is wrong.
func TestEachDamagedPageIsAnError(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 7))
	directory := t.TempDir()
	const count = 3000
	data := sealed(t, filepath.Join(directory, "whole.db"), count)
	pages := len(data) / pageSize
	if pages < 10 {
		t.Fatalf("the file has %d pages; the test needs more", pages)
	}
	told := 0
	for page := range pages {
		damaged := slices.Clone(data)
		damaged[page*pageSize+rng.IntN(pageSize)] ^= 1 << rng.IntN(8)
		path := filepath.Join(directory, fmt.Sprintf("damaged-%d.db", page))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		p := sealedShelf.Read(path)
		for _, query := range countBooks {
			var row []driver.Value
			err := p.View(t.Context(), func(_ context.Context, v View) (err error) {
				row, err = v.First(query)
				return err
			})
			switch {
			case err == nil && row[0] != int64(count):
				t.Errorf("page %d of %d: %s gives %v", page, pages, query, row[0])
			case err != nil:
				told++
				code := plimsoll.CodeOf(err)
				if code != plimsoll.CodeCorrupt && code != plimsoll.CodeInvalid && code != plimsoll.CodeUnavailable {
					t.Errorf("page %d: %v", page, err)
				}
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if told < pages-1 { // one page is the list of pages that are free, or of their owners
		t.Errorf("%d damages are told, and the file has %d pages", told, pages)
	}
}

// A page at the place of another one is damage too, although its bytes are whole.
func TestAPageAtAWrongPlaceIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shelf.db")
	data := sealed(t, path, 3000)
	last := len(data) - pageSize
	moved := slices.Concat(data[:last-pageSize], data[last:], data[last-pageSize:last])
	if err := os.WriteFile(path, moved, 0o600); err != nil {
		t.Fatal(err)
	}
	p := sealedShelf.Read(path)
	err := p.View(t.Context(), func(_ context.Context, v View) (err error) {
		for _, query := range countBooks {
			_, failed := v.First(query)
			err = errors.Join(err, failed)
		}
		return err
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("the error is %v", err)
	}
}

// A new file begins whole after a crash at any byte of its first page; a log that an earlier file
// left is not taken for its own; and a file that is something else stays as it is.
func TestTheFirstPageOfAFile(t *testing.T) {
	directory := t.TempDir()
	page := firstPage()
	for _, written := range []int{0, 1, headerBytes, 512, pageSize - 1, pageSize} {
		path := filepath.Join(directory, fmt.Sprintf("begun-%d.db", written))
		if err := os.WriteFile(path, page[:written], 0o600); err != nil {
			t.Fatal(err)
		}
		sealed(t, path, 10)
		p := sealedShelf.Read(path)
		if n := books(t, p); n != 10 {
			t.Errorf("behind %d bytes of the first page there are %d books", written, n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"notes", strings.Repeat("notes", pageSize)} {
		path := filepath.Join(directory, "notes.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := sealedShelf.Own(t.Context(), path, 1<<20)
		if got, _ := os.ReadFile(path); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt || string(got) != text {
			t.Errorf("a file of %d other bytes: %v; now it has %d", len(text), err, len(got))
		}
	}
	plain := filepath.Join(directory, "plain.db")
	o, err := shelf.Own(t.Context(), plain, 1<<20)
	if err == nil {
		err = o.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = sealedShelf.Own(t.Context(), plain, 1<<20)
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), "but not a shelf") {
		t.Errorf("a database of another kind: %v", err)
	}
}

// A file that cannot be read is not taken for an empty one, and neither is a part of a page beside
// a log: the log may have the whole page.
func TestAFileThatMayHaveContentIsNotBegunAnew(t *testing.T) {
	part := firstPage()[:100]
	for name, c := range map[string]struct {
		content []byte
		mode    int
		failed  bool
	}{
		"unreadable":             {bytes.Repeat([]byte("x"), 3*pageSize), os.O_WRONLY, true},
		"a part beside a log":    {part, os.O_RDWR, false},
		"zeros beside a log":     {make([]byte, pageSize), os.O_RDWR, false},
		"something beside a log": {[]byte("something"), os.O_RDWR, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.db")
			log := []byte("a log")
			err := errors.Join(os.WriteFile(path, c.content, 0o600), os.WriteFile(path+"-wal", log, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.OpenFile(path, c.mode, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := sealedShelf.begin(t.Context(), file); (err != nil) != c.failed {
				t.Errorf("it begins with %v", err)
			}
			if err := file.Close(); err != nil {
				t.Error(err)
			}
			for of, want := range map[string][]byte{path: c.content, path + "-wal": log} {
				if got, err := os.ReadFile(of); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s has changed: %v", filepath.Base(of), err)
				}
			}
		})
	}
}

// A file of an earlier format, whose pages have no checksums, is refused by its format: it is not
// taken for a damaged one.
func TestAFileOfAnEarlierFormatWithoutChecksumsIsRefusedAsSuch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shelf.db")
	earlier := sealedShelf
	earlier.PageSums, earlier.Format = false, 1
	o, err := earlier.Own(t.Context(), path, 1<<20)
	if err == nil {
		err = o.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := sealedShelf.Read(path)
	_, owned := sealedShelf.Own(t.Context(), path, 1<<20)
	viewed := p.View(t.Context(), func(context.Context, View) error { return nil })
	for _, err := range []error{owned, viewed} {
		want := "has format 1, and this program knows 2; run the version that wrote it, or move it away"
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A process that opens a file while another one begins it waits for as long as its caller does.
func TestTheWaitForAFileThatIsBegunEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shelf.db")
	holder, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }() // it ends the lock
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*gatePause)
	defer cancel()
	_, err = sealedShelf.Own(ctx, path, 1<<20)
	if plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
		t.Errorf("the error is %v", err)
	}
}

// A log that is removed is gone on the disk too before anything follows.
func TestTheRemovalOfALogIsDurable(t *testing.T) {
	directory := t.TempDir()
	log := filepath.Join(directory, "shelf.db-wal")
	failed := errors.New("the disk fails")
	synced := 0
	sync := func(of string) error {
		synced++
		if _, err := os.Stat(log); of != directory || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is synced, and the log is there: %v", of, err)
		}
		return failed
	}
	if err := removeLog(log, sync); err != nil || synced != 0 {
		t.Errorf("without a log: %v, and %d directories are synced", err, synced)
	}
	if err := os.WriteFile(log, []byte("a log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeLog(log, sync); !errors.Is(err, failed) || synced != 1 {
		t.Errorf("with a log: %v, and %d directories are synced", err, synced)
	}
}

// A new file has pages of 8 KiB, gives free pages back, and has a log.
func TestTheSettingsOfANewFile(t *testing.T) {
	o := owner(t, filepath.Join(t.TempDir(), "shelf.db"))
	for setting, want := range map[string]driver.Value{
		"page_size": int64(pageSize), "auto_vacuum": int64(2), "journal_mode": "wal", "synchronous": int64(2),
	} {
		if row, err := o.First("PRAGMA " + setting); err != nil || row[0] != want {
			t.Errorf("%s is %v, %v; want %v", setting, row, err, want)
		}
	}
}
