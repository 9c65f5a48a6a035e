// Package parquet writes tables as Apache Parquet files, which analytical programs read.
//
//	w, err := parquet.NewWriter(file, []parquet.Column{{Name: "id", Type: parquet.String}})
//	err = w.Write([]any{"wordcount"})
//	err = w.Close()
//
// A file has row groups of at most GroupRows rows and about GroupBytes bytes, with one page for
// each column: plain values, compressed by zstd. There are no dictionaries, indexes or statistics.
// Times may be missing; other values may not.
//
// A Writer holds one row group in memory. It belongs to one goroutine, and does not close the file.
//
// The format is that of https://parquet.apache.org/docs/file-format/, version 1, whose metadata are
// in Thrift's compact protocol. The module in bench/ reads such a file with another implementation.
package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of a row group.
const (
	GroupRows  = 50_000
	GroupBytes = 8 << 20 // bytes before compression
)

// Type is the type of a column.
type Type uint8

// The types.
const (
	String Type = iota + 1
	Int         // int64
	Uint        // uint64
	Float       // float64
	Time        // time.Time; the zero value is a missing one
)

// Column describes a column.
type Column struct {
	Name string
	Type Type
}

// Writer writes a file.
type Writer struct {
	to      io.Writer
	at      int64 // bytes written
	columns []Column
	pages   []page // of the row group that is being made
	rows    int64  // of it
	groups  []group
	zstd    *zstd.Encoder
}

// page holds the values of a column.
type page struct {
	values []byte
	there  []bool // of a column of times: which values are not missing
}

// group is a row group that was written.
type group struct {
	rows, bytes int64
	chunks      []chunk
}

// chunk is the part of a column in a row group.
type chunk struct{ at, raw, packed int64 }

const magic = "PAR1"

// NewWriter begins a file.
func NewWriter(to io.Writer, columns []Column) (*Writer, error) {
	if len(columns) == 0 {
		return nil, plimsoll.Invalid("columns", "are missing; a file has at least one")
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("begin a Parquet file: %w", err)
	}
	w := &Writer{to: to, columns: columns, pages: make([]page, len(columns)), zstd: encoder}
	return w, w.put([]byte(magic))
}

func (w *Writer) put(data []byte) error {
	n, err := w.to.Write(data)
	w.at += int64(n)
	if err != nil {
		return fmt.Errorf("write a Parquet file: %w", err)
	}
	return nil
}

// Write adds a row: one value for each column, of its type.
func (w *Writer) Write(row []any) error {
	if len(row) != len(w.columns) {
		return plimsoll.Invalid("row", "has %d values for %d columns", len(row), len(w.columns))
	}
	bytes := 0
	for i, value := range row {
		if err := w.pages[i].add(w.columns[i], value); err != nil {
			return err
		}
		bytes += len(w.pages[i].values)
	}
	if w.rows++; w.rows >= GroupRows || bytes >= GroupBytes {
		return w.flush()
	}
	return nil
}

func (p *page) add(c Column, value any) error {
	switch v := value.(type) {
	case string:
		if c.Type == String {
			p.values = binary.LittleEndian.AppendUint32(p.values, uint32(len(v)))
			p.values = append(p.values, v...)
			return nil
		}
	case int64:
		if c.Type == Int {
			p.values = binary.LittleEndian.AppendUint64(p.values, uint64(v))
			return nil
		}
	case uint64:
		if c.Type == Uint {
			p.values = binary.LittleEndian.AppendUint64(p.values, v)
			return nil
		}
	case float64:
		if c.Type == Float {
			p.values = binary.LittleEndian.AppendUint64(p.values, math.Float64bits(v))
			return nil
		}
	case time.Time:
		if c.Type == Time {
			if p.there = append(p.there, !v.IsZero()); !v.IsZero() {
				p.values = binary.LittleEndian.AppendUint64(p.values, uint64(v.UnixNano()))
			}
			return nil
		}
	}
	return plimsoll.Invalid(c.Name, "has a value of the type %T, which is not that of its column", value)
}

// body returns the bytes of a page: levels that say which values are missing, and the values.
func (p *page) body(t Type) []byte {
	if t != Time {
		return p.values
	}
	var levels []byte
	for i := 0; i < len(p.there); {
		n := i + 1
		for n < len(p.there) && p.there[n] == p.there[i] {
			n++
		}
		levels = binary.AppendUvarint(levels, uint64(n-i)<<1)
		if p.there[i] {
			levels = append(levels, 1)
		} else {
			levels = append(levels, 0)
		}
		i = n
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(levels)))
	return append(append(body, levels...), p.values...)
}

// flush writes the row group.
func (w *Writer) flush() error {
	if w.rows == 0 {
		return nil
	}
	g := group{rows: w.rows}
	for i := range w.pages {
		body := w.pages[i].body(w.columns[i].Type)
		packed := w.zstd.EncodeAll(body, nil)
		header := pageHeader(w.rows, len(body), len(packed))
		c := chunk{at: w.at, raw: int64(len(header) + len(body)), packed: int64(len(header) + len(packed))}
		if err := w.put(append(header, packed...)); err != nil {
			return err
		}
		g.chunks, g.bytes = append(g.chunks, c), g.bytes+c.raw
		w.pages[i] = page{values: w.pages[i].values[:0], there: w.pages[i].there[:0]}
	}
	w.groups, w.rows = append(w.groups, g), 0
	return nil
}

// Close writes the end of the file.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	footer := w.footer()
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(footer)))
	if err := w.put(append(footer, magic...)); err != nil {
		return err
	}
	if err := w.zstd.Close(); err != nil {
		return fmt.Errorf("end a Parquet file: %w", err)
	}
	return nil
}
