package rest

import (
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The content codings of answers.
const (
	codingZstd = "zstd"
	codingGzip = "gzip"
)

// packer compresses answers. All requests share its compressors, whose number is bounded.
type packer struct {
	deflater *wire.Deflater
	zstd     *zstd.Encoder
}

// zstdAtOnce bounds the answers that are compressed with zstd at the same time. Others wait.
const zstdAtOnce = 4

func newPacker() packer {
	encoder, err := zstd.NewWriter(
		nil, zstd.WithEncoderConcurrency(zstdAtOnce), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true),
	)
	if err != nil {
		panic(err) // a broken invariant: the options are invalid
	}
	return packer{wire.NewDeflater(stdgzip.BestSpeed), encoder}
}

// pack returns a whole answer in a content coding.
func (p *packer) pack(coding string, body []byte) ([]byte, error) {
	if coding == codingZstd {
		return p.zstd.EncodeAll(body, nil), nil
	}
	return p.deflater.Deflate(body) //nolint:wrapcheck // it says what was being done
}

// piecesTo returns a writer that compresses each piece by itself, and keeps no memory between two:
// gzip without a dictionary, or one zstd frame after the other. An empty coding compresses nothing.
func (p *packer) piecesTo(w io.Writer, coding string) (io.Writer, error) {
	switch coding {
	case codingZstd:
		return frames{p.zstd, w}, nil
	case codingGzip:
		packed, err := gzip.NewWriterLevel(w, gzip.StatelessCompression)
		if err != nil {
			return nil, fmt.Errorf("compress a stream: %w", err)
		}
		return packed, nil
	}
	return w, nil
}

// frames writes each piece as a frame of zstd.
type frames struct {
	encoder *zstd.Encoder
	to      io.Writer
}

// Write implements io.Writer.
func (f frames) Write(p []byte) (int, error) {
	if _, err := f.to.Write(f.encoder.EncodeAll(p, nil)); err != nil {
		return 0, err //nolint:wrapcheck // the caller expects the error of the answer
	}
	return len(p), nil
}

// acceptedCoding returns the content coding for a caller with an Accept-Encoding header: the first
// of zstd and gzip that it names with a weight above zero, and none otherwise.
func acceptedCoding(header string) string {
	for _, coding := range [...]string{codingZstd, codingGzip} {
		if accepts(header, coding) {
			return coding
		}
	}
	return ""
}

func accepts(header, coding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		named, parameter, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(named), coding) {
			continue
		}
		weight, has := strings.CutPrefix(strings.ReplaceAll(parameter, " ", ""), "q=")
		return !has || strings.Trim(weight, "0.") != ""
	}
	return false
}
