package rest

import (
	"io"
	"sync"
)

// answer is the answer to a batch: the lines of its spans as a list, between a head and a tail.
type answer struct {
	head  []byte
	spans []span
	tail  []byte
}

// size returns the bytes of the whole answer.
func (a *answer) size() int {
	size := len(a.head) + len(a.tail)
	for i := range a.spans {
		size += len(a.spans[i].text)
	}
	return size
}

// whole returns the answer in one piece.
func (a *answer) whole() []byte {
	body := append(make([]byte, 0, a.size()), a.head...)
	for i := range a.spans {
		body = a.appendSpan(body, i)
	}
	return append(body, a.tail...)
}

// pieces holds the memory in which writeTo puts spans together, of at most twice answerPiece each.
var pieces = sync.Pool{New: func() any { return new([]byte) }}

const answerPiece = 128 << 10

// writeTo writes the answer in pieces of at most answerPiece, or of one span that is larger. So a
// large answer takes no memory of its size, which would have to be cleared first.
func (a *answer) writeTo(w io.Writer) error {
	piece, _ := pieces.Get().(*[]byte) // the pool holds nothing else
	body := append((*piece)[:0], a.head...)
	defer func() {
		if *piece = body; cap(body) <= 2*answerPiece {
			pieces.Put(piece)
		}
	}()
	for i := range a.spans {
		if len(body) > 0 && len(body)+len(a.spans[i].text) > answerPiece {
			if _, err := w.Write(body); err != nil {
				return err //nolint:wrapcheck // the caller expects the error of the answer
			}
			body = body[:0]
		}
		body = a.appendSpan(body, i)
	}
	body = append(body, a.tail...)
	_, err := w.Write(body)
	return err //nolint:wrapcheck // the caller expects the error of the answer
}

// appendSpan appends the lines of a span with commas for their line breaks. The very last line
// break becomes the bracket that closes the list.
func (a *answer) appendSpan(dst []byte, i int) []byte {
	s := &a.spans[i]
	from := len(dst) - s.base
	dst = append(dst, s.text...)
	for _, end := range s.ends {
		dst[from+end-1] = ','
	}
	if i == len(a.spans)-1 {
		dst[len(dst)-1] = ']'
	}
	return dst
}
