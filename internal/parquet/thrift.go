package parquet

import "encoding/binary"

// thrift appends structures in Thrift's compact protocol.
type thrift struct {
	data []byte
	last []int16 // number of the last field of each structure that is open
}

// The types of fields in the compact protocol.
const (
	thriftTrue   = 1
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

func (t *thrift) field(number int16, kind byte) {
	last := &t.last[len(t.last)-1]
	t.data = append(t.data, byte(number-*last)<<4|kind) // numbers here are less than 16 apart
	*last = number
}

func (t *thrift) open() { t.last = append(t.last, 0) }

func (t *thrift) end() {
	t.data = append(t.data, 0)
	t.last = t.last[:len(t.last)-1]
}

func (t *thrift) varint(v int64) { t.data = binary.AppendVarint(t.data, v) }

func (t *thrift) text(s string) {
	t.data = binary.AppendUvarint(t.data, uint64(len(s)))
	t.data = append(t.data, s...)
}

func (t *thrift) i32(number int16, v int64) {
	t.field(number, thriftI32)
	t.varint(v)
}

func (t *thrift) i64(number int16, v int64) {
	t.field(number, thriftI64)
	t.varint(v)
}

func (t *thrift) string(number int16, s string) {
	t.field(number, thriftBinary)
	t.text(s)
}

func (t *thrift) list(number int16, kind byte, n int) {
	t.field(number, thriftList)
	if n < 15 {
		t.data = append(t.data, byte(n)<<4|kind)
		return
	}
	t.data = append(t.data, 0xf0|kind)
	t.data = binary.AppendUvarint(t.data, uint64(n))
}

func (t *thrift) structure(number int16) {
	t.field(number, thriftStruct)
	t.open()
}

// Numbers of the format's enumerations.
const (
	typeInt64, typeDouble, typeBytes       = 2, 5, 6
	convertedText, convertedUint64         = 0, 14
	repetitionRequired, repetitionOptional = 0, 1
	encodingPlain, encodingRLE             = 0, 3
	codecZstd                              = 6
	logicalTimestamp, unitNanos            = 8, 3
	pageData                               = 0
	fieldVersion, fieldSchema, fieldRows   = 1, 2, 3
	fieldGroups, fieldCreator              = 4, 6
)

// pageHeader returns the header of a page.
func pageHeader(rows int64, raw, packed int) []byte {
	t := &thrift{}
	t.open()
	t.i32(1, pageData)
	t.i32(2, int64(raw))
	t.i32(3, int64(packed))
	t.structure(5)
	t.i32(1, rows)
	t.i32(2, encodingPlain)
	t.i32(3, encodingRLE)
	t.i32(4, encodingRLE)
	t.end()
	t.end()
	return t.data
}

// physical returns the format's type of a column.
func (c *Column) physical() int64 {
	switch c.Type {
	case String:
		return typeBytes
	case Float:
		return typeDouble
	}
	return typeInt64
}

// footer returns the metadata of the file.
func (w *Writer) footer() []byte {
	t := &thrift{}
	t.open()
	t.i32(fieldVersion, 1)
	t.list(fieldSchema, thriftStruct, len(w.columns)+1)
	t.open()
	t.string(4, "schema")
	t.i32(5, int64(len(w.columns)))
	t.end()
	for i := range w.columns {
		w.columns[i].append(t)
	}
	rows := int64(0)
	for i := range w.groups {
		rows += w.groups[i].rows
	}
	t.i64(fieldRows, rows)
	t.list(fieldGroups, thriftStruct, len(w.groups))
	for i := range w.groups {
		w.appendGroup(t, &w.groups[i])
	}
	t.string(fieldCreator, "plimsoll")
	t.end()
	return t.data
}

// append adds the column to the schema.
func (c *Column) append(t *thrift) {
	t.open()
	t.i32(1, c.physical())
	if c.Type == Time {
		t.i32(3, repetitionOptional)
	} else {
		t.i32(3, repetitionRequired)
	}
	t.string(4, c.Name)
	switch c.Type {
	case String:
		t.i32(6, convertedText)
	case Uint:
		t.i32(6, convertedUint64)
	case Time:
		t.structure(10)
		t.structure(logicalTimestamp)
		t.field(1, thriftTrue) // in UTC
		t.structure(2)
		t.structure(unitNanos)
		t.end()
		t.end()
		t.end()
		t.end()
	}
	t.end()
}

func (w *Writer) appendGroup(t *thrift, g *group) {
	t.open()
	t.list(1, thriftStruct, len(g.chunks))
	for i := range g.chunks {
		c := &g.chunks[i]
		t.open()
		t.i64(2, c.at)
		t.structure(3)
		t.i32(1, w.columns[i].physical())
		t.list(2, thriftI32, 2)
		t.varint(encodingPlain)
		t.varint(encodingRLE)
		t.list(3, thriftBinary, 1)
		t.text(w.columns[i].Name)
		t.i32(4, codecZstd)
		t.i64(5, g.rows)
		t.i64(6, c.raw)
		t.i64(7, c.packed)
		t.i64(9, c.at)
		t.end()
		t.end()
	}
	t.i64(2, g.bytes)
	t.i64(3, g.rows)
	t.end()
}
