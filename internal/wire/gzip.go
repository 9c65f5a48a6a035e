package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
)

const gzipName = "gzip"

// gzipReader inflates one message after another, each to its bound. connect would go on to the end
// of a message that is too long, only to tell how long it is; so this one fails there.
type gzipReader struct {
	gzip.Reader
	most, left int
}

func (b Bounds) newGzipReader() connect.Decompressor { return &gzipReader{most: b.Bytes} }

// Reset implements connect.Decompressor.
func (r *gzipReader) Reset(from io.Reader) error {
	r.left = r.most
	return r.Reader.Reset(from) //nolint:wrapcheck // connect wraps it
}

// Read implements io.Reader.
func (r *gzipReader) Read(p []byte) (int, error) {
	if len(p) > r.left {
		p = p[:r.left+1] // one byte more shows that there is more
	}
	n, err := r.Reader.Read(p)
	if n > r.left {
		return r.left, ConnectError(TooLong(r.most))
	}
	r.left -= n
	return n, err //nolint:wrapcheck // a reader returns io.EOF itself, and connect wraps the others
}

// Deflater compresses. What it needs for that, nearly a MiB, is there for gzipWriters at once, and
// others wait: it is work of the processor alone, so none is held for long. Use NewDeflater.
type Deflater struct {
	writers sync.Pool
	slots   chan struct{}
}

const gzipWriters = 16

// NewDeflater returns a Deflater of a level of package gzip.
func NewDeflater(level int) *Deflater {
	d := &Deflater{slots: make(chan struct{}, gzipWriters)}
	d.writers.New = func() any {
		w, err := gzip.NewWriterLevel(io.Discard, level)
		if err != nil {
			panic(err) // a broken invariant: the level is one
		}
		return w
	}
	return d
}

// Deflate returns data compressed.
func (d *Deflater) Deflate(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzipWriter{shared: d, to: &out}
	_, err := w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compress an answer: %w", err)
	}
	return out.Bytes(), nil
}

func (d *Deflater) newWriter() connect.Compressor { return &gzipWriter{shared: d, to: io.Discard} }

// gzipWriter has a writer of a Deflater from its first byte until it is closed.
type gzipWriter struct {
	shared *Deflater
	to     io.Writer
	mine   *gzip.Writer // nil: none
}

// Reset implements connect.Compressor.
func (w *gzipWriter) Reset(to io.Writer) {
	w.release()
	w.to = to
}

// Write implements io.Writer.
func (w *gzipWriter) Write(p []byte) (int, error) {
	w.acquire()
	return w.mine.Write(p) //nolint:wrapcheck // connect wraps it
}

// Close implements connect.Compressor.
func (w *gzipWriter) Close() error {
	w.acquire() // also nothing has a form when it is compressed
	defer w.release()
	return w.mine.Close() //nolint:wrapcheck // connect wraps it
}

func (w *gzipWriter) acquire() {
	if w.mine == nil {
		w.shared.slots <- struct{}{}
		w.mine = w.shared.writers.Get().(*gzip.Writer)
		w.mine.Reset(w.to)
	}
}

func (w *gzipWriter) release() {
	if w.mine != nil {
		w.mine.Reset(io.Discard)
		w.shared.writers.Put(w.mine)
		w.mine = nil
		<-w.shared.slots
	}
}

// TooLong is the refusal of a message that has more bytes than it may, inflated if it is
// compressed.
func TooLong(most int) error {
	return plimsoll.Errorf(
		plimsoll.CodeExhausted, "the message is longer than %d bytes, as long as one may be; send less at once", most,
	)
}

// InflateBytes is about what inflating takes beside the result.
const InflateBytes = 48 << 10

// Inflater inflates messages. The garbage collector drops the readers that it keeps and nobody
// needs. The zero value is ready.
type Inflater struct{ readers sync.Pool }

// Inflate returns what data inflates to, if that is no more than most bytes. grow is called before
// the result grows, with by how many bytes; an error of it ends the work.
func (i *Inflater) Inflate(data []byte, most int, grow func(int) error) ([]byte, error) {
	r, ok := i.readers.Get().(*gzipReader)
	if !ok {
		r = &gzipReader{}
	}
	defer i.readers.Put(r)
	r.most = most
	if err := r.Reset(bytes.NewReader(data)); err != nil {
		return nil, badGzip(err)
	}
	var out []byte
	for more := min(max(4*len(data), 512), most+1); ; more = min(cap(out), most+1-cap(out)) {
		if err := grow(more); err != nil {
			return nil, err
		}
		wider := make([]byte, len(out), cap(out)+more)
		copy(wider, out)
		out = wider
		for len(out) < cap(out) {
			n, err := r.Read(out[len(out):cap(out)])
			out = out[:len(out)+n]
			switch {
			case errors.Is(err, io.EOF):
				return out, nil
			case connect.CodeOf(err) == connect.CodeResourceExhausted:
				return nil, TooLong(most)
			case err != nil:
				return nil, badGzip(err)
			}
		}
	}
}

func badGzip(err error) error { return plimsoll.Invalid("body", "cannot be inflated: %s", err) }
