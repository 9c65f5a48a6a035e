// Package backup writes all that a store holds into one file. It puts such a file into a store
// again, also into one of another kind.
//
// A file is one stream of zstd. It holds a header in JSON, the records in the order of kind and
// key, and the chunks of events in the order of revision. Its end has the revision, the time, the
// counts, and the SHA-256 of all before it. So a file that was cut off, changed or damaged is
// refused as a whole, before anything of it is used.
//
//	content, err := backup.Write(ctx, w, backup.Header{Epoch: epoch}, st.Load) // st may be in use
//	file, err := backup.Open(ctx, path)                                        // checks all of it
//	err = backup.Restore(ctx, file, st, backup.Options{})
//
// A restore that does not end leaves a record that says so (wire.KindImport), with which no
// coordinator begins to lead. The next restore begins anew.
//
// Cost: each step reads or writes the content once, and keeps one record, or one batch, in memory.
// Restore reads the file twice. The coordinator serves Write to callers, and `plimsoll store` calls
// the rest.
package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// format is the version of the file's form.
const format = 1

// maxField bounds one key, value or chunk in bytes. No record of a store comes near it.
const maxField = 256 << 20

// The first byte of each part of a file.
const (
	partHeader byte = 'h'
	partRecord byte = 'r'
	partEvents byte = 'e'
	partEnd    byte = 'z'
)

// Header says where a file comes from.
type Header struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program that wrote it
	Made    time.Time `json:"made"`
	Epoch   uint64    `json:"epoch"` // of the leader from whose store it was made
}

// Content sums up a file.
type Content struct {
	Header
	Revision uint64 `json:"revision"` // of the last batch
	Time     int64  `json:"time"`     // of the last batch, in Unix nanoseconds
	Records  uint64 `json:"records"`
	Chunks   uint64 `json:"chunks"` // of events
	Events   uint64 `json:"events"`
	Bytes    uint64 `json:"bytes"` // of keys, values and chunks
}

// LoadFunc has the form of store.Store.Load.
type LoadFunc = func(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error) (revision uint64, time int64, err error)

// writer writes the parts of a file.
type writer struct {
	w   io.Writer // also writes to sum
	sum hash.Hash
	buf []byte
}

func (w *writer) part(kind byte, numbers []uint64, fields ...[]byte) error {
	w.buf = append(w.buf[:0], kind)
	for _, n := range numbers {
		w.buf = binary.AppendUvarint(w.buf, n)
	}
	for _, f := range fields {
		w.buf = binary.AppendUvarint(w.buf, uint64(len(f)))
		w.buf = append(w.buf, f...)
	}
	_, err := w.w.Write(w.buf)
	return err
}

// Write writes the content that load gives, and returns its sums. The header's Format and Made are
// set here.
func Write(ctx context.Context, to io.Writer, h Header, load LoadFunc) (Content, error) {
	packed, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return Content{}, fmt.Errorf("begin the backup: %w", err)
	}
	h.Format, h.Made = format, time.Now().UTC()
	content := Content{Header: h}
	err = content.write(ctx, packed, load)
	if err = errors.Join(err, packed.Close()); err != nil {
		return Content{}, fmt.Errorf("write the backup: %w", err)
	}
	return content, nil
}

func (c *Content) write(ctx context.Context, to io.Writer, load LoadFunc) error {
	sum := sha256.New()
	w := &writer{w: io.MultiWriter(to, sum), sum: sum}
	header, err := json.Marshal(c.Header)
	if err != nil {
		return err
	}
	if err := w.part(partHeader, nil, header); err != nil {
		return err
	}
	revision, at, err := load(ctx, func(kind wire.Kind, key string, value []byte) error {
		c.Records++
		c.Bytes += uint64(len(key) + len(value))
		return w.part(partRecord, []uint64{uint64(kind)}, []byte(key), value)
	}, func(revision uint64, chunk wire.EventChunk) error {
		c.Chunks++
		c.Events += chunk.Count
		c.Bytes += uint64(len(chunk.Data))
		return w.part(partEvents, []uint64{revision, chunk.FirstID, chunk.Count}, chunk.Data)
	})
	if err != nil {
		return err
	}
	c.Revision, c.Time = revision, at
	return w.part(partEnd, c.sums(), sum.Sum(nil))
}

// sums returns the numbers of the end.
func (c *Content) sums() []uint64 {
	return []uint64{c.Revision, uint64(c.Time), c.Records, c.Chunks, c.Events, c.Bytes}
}

// File is a file that Open has checked.
type File struct {
	path    string
	content Content
}

// Open reads a whole file and checks it. It fails with CodeCorrupt if the file was cut off,
// changed or damaged, and with CodeConflict if a newer version wrote it.
func Open(ctx context.Context, path string) (*File, error) {
	f := &File{path: path}
	nothing := func(wire.Kind, string, []byte) error { return nil }
	content, err := f.read(ctx, nothing, func(uint64, wire.EventChunk) error { return nil })
	if err != nil {
		return nil, err
	}
	f.content = content
	return f, nil
}

// Content returns what the file holds.
func (f *File) Content() Content { return f.content }

// Load reads the file again; see store.Store.
func (f *File) Load(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, at int64, err error) {
	c, err := f.read(ctx, record, events)
	if err == nil && c != f.content {
		err = plimsoll.Errorf(plimsoll.CodeConflict, "%s was changed while it was read; try again", f.path)
	}
	return c.Revision, c.Time, err
}

func (f *File) read(ctx context.Context, record func(wire.Kind, string, []byte) error,
	events func(uint64, wire.EventChunk) error,
) (c Content, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return c, fmt.Errorf("open the backup: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	packed, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return c, fmt.Errorf("read %s: %w", f.path, err)
	}
	defer packed.Close()
	r := &reader{r: bufio.NewReaderSize(packed, 1<<16), sum: sha256.New()}
	for {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		done, err := c.next(r, record, events)
		if r.err != nil && (err == nil || errors.Is(err, r.err)) {
			return c, f.damaged(r.err)
		}
		if done || err != nil {
			return c, err
		}
	}
}

func (f *File) damaged(cause error) error {
	if errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) {
		cause = errors.New("it ends too early")
	}
	return plimsoll.Errorf(
		plimsoll.CodeCorrupt, "%s is no whole backup of a store: %v; nothing of it was used, take another one", f.path,
		cause,
	)
}

// next reads one part of a file. done is true behind the end.
func (c *Content) next(r *reader, record func(wire.Kind, string, []byte) error,
	events func(uint64, wire.EventChunk) error,
) (done bool, err error) {
	switch kind := r.kind(); {
	case r.err != nil:
		return false, r.err
	case (kind == partHeader) != (c.Format == 0):
		r.fail(fmt.Errorf("a part %q stands at the wrong place", kind))
		return false, r.err
	case kind == partHeader:
		return false, c.header(r)
	case kind == partRecord:
		kind, key, value := wire.Kind(r.number()), string(r.field()), r.field()
		if r.err != nil {
			return false, r.err
		}
		c.Records++
		c.Bytes += uint64(len(key) + len(value))
		return false, record(kind, key, value)
	case kind == partEvents:
		revision := r.number()
		chunk := wire.EventChunk{FirstID: r.number(), Count: r.number()}
		if chunk.Data = r.field(); r.err != nil {
			return false, r.err
		}
		c.Chunks++
		c.Events += chunk.Count
		c.Bytes += uint64(len(chunk.Data))
		return false, events(revision, chunk)
	case kind == partEnd:
		return true, c.end(r)
	default:
		r.fail(fmt.Errorf("an unknown part %q", kind))
		return false, r.err
	}
}

func (c *Content) header(r *reader) error {
	text := r.field()
	if r.err != nil {
		return r.err
	}
	if err := json.Unmarshal(text, &c.Header); err != nil {
		r.fail(fmt.Errorf("its header cannot be read: %w", err))
		return r.err
	}
	switch {
	case c.Format > format:
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"the backup has format %d, and this version knows %d; use version %s of plimsoll, which wrote it, or a later one",
			c.Format, format, c.Version)
	case c.Format < 1:
		r.fail(fmt.Errorf("it has format %d", c.Format))
		return r.err
	}
	return nil
}

// end checks the sums of a file, and that nothing follows them.
func (c *Content) end(r *reader) error {
	want := r.sum.Sum(nil)
	read := *c
	read.Revision, read.Time = r.number(), int64(r.number())
	for _, n := range read.sums()[2:] {
		if r.number() != n {
			r.fail(errors.New("its counts are not those of its content"))
		}
	}
	if got := r.field(); r.err == nil && !bytes.Equal(got, want) {
		r.fail(errors.New("its checksum is not that of its content"))
	}
	if r.err == nil {
		if _, err := r.r.ReadByte(); !errors.Is(err, io.EOF) {
			r.fail(errors.Join(errors.New("something follows its end"), err))
		}
	}
	if r.err != nil {
		return r.err
	}
	*c = read
	return nil
}

// reader reads the fields of a file. Behind the first error its results mean nothing.
type reader struct {
	r   *bufio.Reader
	sum hash.Hash // of all parts before the present one
	ate []byte    // bytes of the present part
	buf [2]bytes.Buffer
	use int
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// kind begins the next part.
func (r *reader) kind() byte {
	r.sum.Write(r.ate)
	r.ate = r.ate[:0]
	return r.byte()
}

func (r *reader) byte() byte {
	if r.err != nil {
		return 0
	}
	b, err := r.r.ReadByte()
	if err != nil {
		r.fail(err)
		return 0
	}
	r.ate = append(r.ate, b)
	return b
}

func (r *reader) number() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		if shift == 63 && b > 1 {
			r.fail(errors.New("a number has more than 64 bits"))
			return 0
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

// field returns a field of bytes, which is valid until the one after the next is read.
func (r *reader) field() []byte {
	size := r.number()
	if r.err == nil && size > maxField {
		r.fail(fmt.Errorf("a field has %d bytes, more than %d", size, maxField))
	}
	if r.err != nil {
		return nil
	}
	r.use = 1 - r.use
	b := &r.buf[r.use]
	b.Reset()
	if _, err := io.CopyN(b, r.r, int64(size)); err != nil { // grows with what is there, not with what size says
		r.fail(err)
		return nil
	}
	r.ate = append(r.ate, b.Bytes()...)
	return b.Bytes()
}
