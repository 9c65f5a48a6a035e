package sqlitefile

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
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
