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

// gzipReader inflates one message after another, each up to its bound, and fails beyond it. connect
// alone would inflate a message that is too long to its end, just to report its length.
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
		p = p[:r.left+1] // a byte beyond the bound shows that the message is too long
	}
	n, err := r.Reader.Read(p)
	if n > r.left {
		return r.left, ConnectError(TooLong(r.most))
	}
	r.left -= n
	return n, err //nolint:wrapcheck // a reader returns io.EOF itself, and connect wraps the others
}

// Deflater compresses messages. A writer takes nearly a MiB, so at most gzipWriters are in use at
// once, and further callers wait. The work takes processor time alone, so the waits are short.
// NewDeflater makes a Deflater.
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
			panic(err) // a broken invariant: the level is invalid
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

// gzipWriter holds a writer of a Deflater from its first byte until it is closed.
type gzipWriter struct {
	shared *Deflater
	to     io.Writer
	mine   *gzip.Writer // nil: no writer is held
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
	w.acquire() // an empty message has a compressed form too
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

// TooLong returns the error for a message of more than most bytes, inflated if it was compressed.
func TooLong(most int) error {
	return plimsoll.Errorf(
		plimsoll.CodeExhausted, "the message is longer than %d bytes, as long as one may be; send less at once", most,
	)
}

// InflateBytes is the approximate cost of inflating a message, beside the result.
const InflateBytes = 48 << 10

// Inflater inflates messages. It keeps idle readers until the garbage collector drops them. The
// zero value is ready.
type Inflater struct{ readers sync.Pool }

// Inflate returns the inflated form of data, and fails if it has more than most bytes. Before the
// result grows it calls grow with the number of bytes; an error of grow ends the work.
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
