// Package parquet writes tables as Apache Parquet files, which analytical programs read.
//
//	w, err := parquet.NewWriter(file, []parquet.Column{{Name: "id", Type: parquet.String}})
//	err = w.Write([]any{"wordcount"})
//	err = w.Close()
//
// The format is made by github.com/parquet-go/parquet-go. This package names the columns of a table
// at run time, keeps their order, and bounds what is held in memory: a row group of at most
// GroupRows rows, or a little more than GroupBytes bytes before compression. Values are compressed
// by zstd. Times may be missing; other values may not.
//
// A Writer belongs to one goroutine, and does not close the file.
package parquet

import (
	"fmt"
	"io"
	"time"

	"github.com/parquet-go/parquet-go"

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
	to      *parquet.GenericWriter[any]
	columns []Column
	row     []parquet.Value
	rows    int // of the row group that is being made
	bytes   int // of it
}

// table is a group whose fields stay in the order in which they were given.
type table struct {
	parquet.Group

	fields []parquet.Field
}

// Fields implements parquet.Node.
func (t *table) Fields() []parquet.Field { return t.fields }

// node returns how a type is stored.
func (t Type) node() parquet.Node {
	switch t {
	case Int:
		return parquet.Int(64)
	case Uint:
		return parquet.Uint(64)
	case Float:
		return parquet.Leaf(parquet.DoubleType)
	case Time:
		return parquet.Optional(parquet.Timestamp(parquet.Nanosecond))
	default:
		return parquet.String()
	}
}

// NewWriter begins a file.
func NewWriter(to io.Writer, columns []Column) (*Writer, error) {
	if len(columns) == 0 {
		return nil, plimsoll.Invalid("columns", "are missing; a file has at least one")
	}
	t := &table{Group: parquet.Group{}}
	for _, c := range columns {
		if _, twice := t.Group[c.Name]; twice {
			return nil, plimsoll.Invalid("columns", "has %.80q twice; name each once", c.Name)
		}
		t.Group[c.Name] = c.Type.node()
		t.fields = append(t.fields, parquet.Group{c.Name: t.Group[c.Name]}.Fields()...)
	}
	config, err := parquet.NewWriterConfig(
		parquet.NewSchema("rows", t), parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(GroupRows),
		parquet.CreatedBy("plimsoll", "", ""),
	)
	if err != nil {
		return nil, fmt.Errorf("begin a Parquet file: %w", err)
	}
	return &Writer{
		to: parquet.NewGenericWriter[any](to, config), columns: columns, row: make([]parquet.Value, len(columns)),
	}, nil
}

// Write adds a row: one value for each column, of its type.
func (w *Writer) Write(row []any) error {
	if len(row) != len(w.columns) {
		return plimsoll.Invalid("row", "has %d values for %d columns", len(row), len(w.columns))
	}
	bytes := 0
	for i, value := range row {
		v, size, err := w.columns[i].value(value)
		if err != nil {
			return err
		}
		level := 0
		if w.columns[i].Type == Time && !v.IsNull() {
			level = 1
		}
		w.row[i], bytes = v.Level(0, level, i), bytes+size
	}
	if _, err := w.to.WriteRows([]parquet.Row{w.row}); err != nil {
		return fmt.Errorf("write a Parquet file: %w", err)
	}
	w.rows, w.bytes = w.rows+1, w.bytes+bytes
	if w.rows < GroupRows && w.bytes < GroupBytes {
		return nil
	}
	w.rows, w.bytes = 0, 0
	if err := w.to.Flush(); err != nil {
		return fmt.Errorf("write a Parquet file: %w", err)
	}
	return nil
}

// value returns a value as it is stored, and its size in bytes.
func (c *Column) value(value any) (parquet.Value, int, error) {
	switch v := value.(type) {
	case string:
		if c.Type == String {
			return parquet.ValueOf(v), 4 + len(v), nil
		}
	case int64:
		if c.Type == Int {
			return parquet.ValueOf(v), 8, nil
		}
	case uint64:
		if c.Type == Uint {
			return parquet.ValueOf(v), 8, nil
		}
	case float64:
		if c.Type == Float {
			return parquet.ValueOf(v), 8, nil
		}
	case time.Time:
		switch {
		case c.Type != Time:
		case v.IsZero():
			return parquet.NullValue(), 1, nil
		default:
			return parquet.Int64Value(v.UnixNano()), 9, nil
		}
	}
	return parquet.Value{}, 0, plimsoll.Invalid(
		c.Name, "has a value of the type %T, which is not that of its column", value,
	)
}

// Close writes the end of the file.
func (w *Writer) Close() error {
	if err := w.to.Close(); err != nil {
		return fmt.Errorf("end a Parquet file: %w", err)
	}
	return nil
}
