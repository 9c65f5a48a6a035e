package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// AnswerField is a field of an answer that holds records.
type AnswerField struct {
	Number uint64
	Name   string // in JSON
	List   bool
}

// Encoded is the value of a field that is encoded already, in the form of its answer.
type Encoded struct {
	Field AnswerField
	Data  []byte
}

// Answer is the message of a response, put together from records that are encoded already. It is
// written once: by the codecs of this package, which copy each record once, by Append, or by
// AppendBuffers, which copies none.
//
// Add and AddNested add the records, in the order of the field numbers. Finish adds the fields
// behind them, and the age of the state as the last one. So all bytes before the age, the body, are
// the same in all answers to one question from one state. The records must not change until the
// answer is written.
type Answer struct {
	json  bool
	parts []answerPart
	size  int
	open  AnswerField // JSON: the list under way; zero: none
	age   int32       // number of the field of the age
	tail  [tailBytes]byte
	ended uint8 // bytes of tail

	reused bool // the body is the data of the first part
}

// ageName is the name in JSON of the field of the age, in all answers. tailBytes bounds the bytes
// of that field and the end of the answer: a comma, the quoted name, a colon, a quoted number of 64
// bits and a brace.
const (
	ageName   = "ageNanos"
	tailBytes = 1 + len(ageName) + 2 + 1 + 20 + 2 + 1
)

// answerPart is a few bytes of syntax and the bytes of a record behind them.
type answerPart struct {
	head [2 * protowireMax]byte
	n    uint8 // bytes of head
	data []byte
}

// protowireMax bounds the bytes of a tag and a length of less than 2 GiB.
const protowireMax = 10

// partsKept bounds the parts of a list that is used again.
const partsKept = 4096

// spare holds the lists of parts of answers that were written.
var spare sync.Pool //nolint:gochecknoglobals // memory that is used again

// NewAnswer begins an answer, in JSON or binary.
func NewAnswer(json bool) *Answer {
	a := &Answer{json: json}
	if parts, ok := spare.Get().(*[]answerPart); ok {
		a.parts = *parts
	}
	return a
}

// JSON reports whether the answer takes records in JSON.
func (a *Answer) JSON() bool { return a.json }

// Size returns the bytes of all that was added.
func (a *Answer) Size() int { return a.size }

// Add adds a record as the value of a field, or as the next element of a list.
func (a *Answer) Add(f AnswerField, data []byte) {
	if a.json {
		a.begin(f)
		a.data(data)
		return
	}
	a.bytes(f.Number, len(data), data)
}

// AddNested is Add for a message whose fields are records.
func (a *Answer) AddNested(f AnswerField, fields ...Encoded) {
	if a.json {
		a.begin(f)
		separator := "{"
		for _, inner := range fields {
			a.text(separator + `"` + inner.Field.Name + `":`)
			a.data(inner.Data)
			separator = ","
		}
		if len(fields) == 0 {
			a.text("{")
		}
		a.text("}")
		return
	}
	size := 0
	for _, inner := range fields {
		size += sizeMessage(inner.Field.Number, len(inner.Data))
	}
	a.bytes(f.Number, size, nil)
	for _, inner := range fields {
		a.bytes(inner.Field.Number, len(inner.Data), inner.Data)
	}
}

// begin writes the JSON before a value of a field.
func (a *Answer) begin(f AnswerField) {
	switch {
	case f.List && a.open == f:
		a.text(",")
	case f.List:
		a.text(a.separator() + `"` + f.Name + `":[`)
		a.open = f
	default:
		a.text(a.separator() + `"` + f.Name + `":`)
	}
}

// separator returns the JSON between the fields so far and the next one.
func (a *Answer) separator() string {
	switch {
	case len(a.parts) == 0:
		return "{"
	case a.open.List:
		a.open = AnswerField{}
		return "],"
	}
	return ","
}

// Finish adds the fields that are no records: those that are set in rest, a message of the answer's
// type, and the age. Their numbers are higher than those of the records. rest has no age.
func (a *Answer) Finish(rest proto.Message, age time.Duration) error {
	field := rest.ProtoReflect().Descriptor().Fields().ByJSONName(ageName)
	if field == nil {
		return plimsoll.Errorf(plimsoll.CodeInternal, "an answer of type %s has no field %s",
			rest.ProtoReflect().Descriptor().Name(), ageName)
	}
	if err := a.finish(rest); err != nil {
		return err
	}
	a.age = int32(field.Number())
	a.end(age)
	return nil
}

// finish is Finish up to the age.
func (a *Answer) finish(rest proto.Message) error {
	if !a.json {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(rest)
		if err != nil {
			return fmt.Errorf("encode the end of an answer: %w", err)
		}
		a.data(data)
		return nil
	}
	data, simple := appendNumbers(nil, rest)
	if !simple {
		var err error
		if data, err = AppendJSON(nil, rest); err != nil {
			return err
		}
	}
	data = data[:len(data)-1] // the end stands behind the age
	switch {
	case len(a.parts) == 0:
	case len(data) == len("{"):
		if a.open.List {
			a.text("]")
		}
		data = data[1:]
	default:
		a.text(a.separator())
		data = data[1:]
	}
	a.data(data)
	return nil
}

// end sets the bytes behind the body.
func (a *Answer) end(age time.Duration) {
	a.size -= int(a.ended)
	tail := a.tail[:0]
	switch {
	case !a.json && age != 0:
		tail = binary.AppendUvarint(binary.AppendUvarint(tail, uint64(a.age)<<3|varintType), uint64(age))
	case a.json:
		if age != 0 {
			if a.size > len("{") {
				tail = append(tail, ',')
			}
			tail = append(tail, `"`+ageName+`":"`...)
			tail = append(strconv.AppendInt(tail, int64(age), 10), '"')
		}
		tail = append(tail, '}')
	}
	a.ended = uint8(len(tail))
	a.size += len(tail)
}

// Body returns a copy of the answer without its age, for Reuse.
func (a *Answer) Body() Body {
	body := Body{json: a.json, age: a.age, data: make([]byte, 0, a.size-int(a.ended))}
	for i := range a.parts {
		p := &a.parts[i]
		body.data = append(append(body.data, p.head[:p.n]...), p.data...)
	}
	return body
}

// Body is an answer without its age, in one piece. It never changes.
type Body struct {
	json bool
	age  int32
	data []byte
}

// Size returns the bytes of the body.
func (b *Body) Size() int { return len(b.data) }

// Reuse makes a new answer of the body of another one. It holds no copy of the body.
func (a *Answer) Reuse(b Body, age time.Duration) {
	a.json, a.age, a.size, a.ended, a.reused = b.json, b.age, 0, 0, true
	a.parts = a.parts[:0]
	a.data(b.data)
	a.end(age)
}

// bytes adds the header of a field of so many bytes, and the bytes.
func (a *Answer) bytes(number uint64, size int, data []byte) {
	a.parts = append(a.parts, answerPart{data: data})
	p := &a.parts[len(a.parts)-1]
	p.n = uint8(len(appendHeader(p.head[:0], number, size)))
	a.size += int(p.n) + len(data)
}

// data adds bytes, behind the syntax of the last part if that has none.
func (a *Answer) data(data []byte) {
	a.size += len(data)
	if last := len(a.parts) - 1; last >= 0 && a.parts[last].data == nil {
		a.parts[last].data = data
		return
	}
	a.parts = append(a.parts, answerPart{data: data})
}

// text adds syntax of JSON. A separator of lists fits into a head, and costs no allocation.
func (a *Answer) text(s string) {
	if len(s) > 2*protowireMax {
		a.data([]byte(s))
		return
	}
	a.parts = append(a.parts, answerPart{n: uint8(len(s))})
	copy(a.parts[len(a.parts)-1].head[:], s)
	a.size += len(s)
}

// appendTo writes the answer behind dst. It can be called once.
func (a *Answer) appendTo(dst []byte, json bool) ([]byte, error) {
	if json != a.json {
		return nil, plimsoll.Errorf(plimsoll.CodeInternal, "an answer was made for another encoding")
	}
	if free := cap(dst) - len(dst); free < a.size {
		dst = append(make([]byte, 0, len(dst)+a.size), dst...)
	}
	for i := range a.parts {
		p := &a.parts[i]
		dst = append(append(dst, p.head[:p.n]...), p.data...)
	}
	dst = append(dst, a.tail[:a.ended]...)
	a.Release()
	return dst, nil
}

// AppendBuffers appends the bytes of the answer to a list. They must not be changed, and are valid
// until Release.
func (a *Answer) AppendBuffers(list net.Buffers) net.Buffers {
	for i := range a.parts {
		p := &a.parts[i]
		if p.n > 0 {
			list = append(list, p.head[:p.n])
		}
		if len(p.data) > 0 {
			list = append(list, p.data)
		}
	}
	if a.ended > 0 {
		list = append(list, a.tail[:a.ended])
	}
	return list
}

// Whole returns the two pieces of an answer that was made by Reuse. They are valid for as long as
// the buffers of AppendBuffers. whole is false for any other answer.
func (a *Answer) Whole() (body, end []byte, whole bool) {
	if !a.reused {
		return nil, nil, false
	}
	return a.parts[0].data, a.tail[:a.ended], true
}

// Gathered reports whether an answer is written faster in buffers than as one copy: its records are
// large enough to be worth a place in the list.
func (a *Answer) Gathered() bool {
	return a.size >= gatheredBytes && a.size/len(a.parts) >= gatheredPart
}

const (
	gatheredBytes = 32 << 10 // of the smallest answer that is written in buffers
	gatheredPart  = 512      // the average bytes of its parts, at least
)

// Append writes the answer behind dst. It is the last use of the answer.
func (a *Answer) Append(dst []byte) []byte {
	dst, _ = a.appendTo(dst, a.json) // the encoding is the answer's own
	return dst
}

// Release gives up the memory of an answer that was written, for another one.
func (a *Answer) Release() {
	if cap(a.parts) > 0 && cap(a.parts) <= partsKept {
		clear(a.parts) // the records may be dropped
		parts := a.parts[:0]
		spare.Put(&parts)
	}
	a.parts = nil
}

// appendNumbers is AppendJSON for a message in which only 64-bit numbers are set, as in the end of
// most answers; simple is false for any other.
func appendNumbers(dst []byte, m proto.Message) (out []byte, simple bool) {
	reflected := m.ProtoReflect()
	fields := reflected.Descriptor().Fields()
	separator := byte('{')
	for i := range fields.Len() {
		f := fields.Get(i)
		if !reflected.Has(f) {
			continue
		}
		if f.Cardinality() == protoreflect.Repeated {
			return nil, false
		}
		dst = append(append(append(dst, separator, '"'), f.JSONName()...), `":"`...)
		switch f.Kind() { //nolint:exhaustive // the rest is left to AppendJSON
		case protoreflect.Int64Kind:
			dst = strconv.AppendInt(dst, reflected.Get(f).Int(), 10)
		case protoreflect.Uint64Kind:
			dst = strconv.AppendUint(dst, reflected.Get(f).Uint(), 10)
		default:
			return nil, false
		}
		dst = append(dst, '"')
		separator = ','
	}
	if separator == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}'), len(reflected.GetUnknown()) == 0
}

// AppendJSON appends the JSON of a message without white space. protojson adds some at random.
func AppendJSON(dst []byte, m proto.Message) ([]byte, error) {
	loose, err := protojson.MarshalOptions{}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	compact := bytes.NewBuffer(dst)
	if err := json.Compact(compact, loose); err != nil {
		return nil, fmt.Errorf("compact the JSON of %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return compact.Bytes(), nil
}

// JobFacts are the fields of an encoded JobStatus by which lists choose.
type JobFacts struct {
	Queue, Owner []byte
	State        int32
	Killed       bool
	Submitted    int64
	Finished     int64
	UID          []byte // as text; empty in a record from before uids existed
	Deleted      bool
}

// Lifetime returns the uid of the job. One from before uids existed has the time of its submit
// only.
func (facts *JobFacts) Lifetime() (plimsoll.UID, error) {
	if len(facts.UID) == 0 {
		return plimsoll.MakeUID(facts.Submitted, 0), nil
	}
	return plimsoll.ParseUID(string(facts.UID)) //nolint:wrapcheck // the caller names the record
}

// Result returns how the job ended, as plimsoll.JobStatus.Result does.
func (facts *JobFacts) Result() plimsoll.TaskResult {
	s := plimsoll.JobStatus{State: plimsoll.JobState(enumOf(facts.State)), Killed: facts.Killed}
	return s.Result()
}

// LookAtJob reads the facts of an encoded JobStatus without decoding it. It goes over all fields,
// and fails if one is malformed.
func LookAtJob(data []byte) (facts JobFacts, err error) {
	for len(data) > 0 {
		var f field
		if f, data, err = nextField(data); err != nil {
			return facts, corrupt("the status of a job", err)
		}
		facts.take(&f)
	}
	return facts, nil
}

func (facts *JobFacts) take(f *field) {
	switch f.tag {
	case 2<<3 | bytesType:
		facts.Owner = f.b
	case 3<<3 | bytesType:
		facts.Queue = f.b
	case 4<<3 | varintType:
		facts.State = int32(f.v)
	case 6<<3 | varintType:
		facts.Killed = f.v != 0
	case 7<<3 | varintType:
		facts.Submitted = int64(f.v)
	case 9<<3 | varintType:
		facts.Finished = int64(f.v)
	case 12<<3 | bytesType:
		facts.UID = f.b
	case 14<<3 | varintType:
		facts.Deleted = f.v != 0
	}
}

// TaskFacts are the fields of an encoded Task by which lists choose.
type TaskFacts struct {
	Node          []byte
	State, Result int32
	ExitCode      int32
	Finished      int64
}

// LookAtTask is LookAtJob for a Task.
func LookAtTask(data []byte) (facts TaskFacts, err error) {
	for len(data) > 0 {
		var f field
		if f, data, err = nextField(data); err != nil {
			return facts, corrupt("a task", err)
		}
		facts.take(&f)
	}
	return facts, nil
}

func (facts *TaskFacts) take(f *field) {
	switch f.tag {
	case 6<<3 | varintType:
		facts.State = int32(f.v)
	case 7<<3 | varintType:
		facts.Result = int32(f.v)
	case 8<<3 | bytesType:
		facts.Node = f.b
	case 9<<3 | varintType:
		facts.ExitCode = int32(f.v)
	case 14<<3 | varintType:
		facts.Finished = int64(f.v)
	}
}

// NoResourceIn reports whether an encoded JobStatus may have a group that waits for a resource that
// no node has: it looks for the bytes of that field, and goes over no fields.
func NoResourceIn(status []byte) bool {
	const tag = 4<<3 | byte(varintType)
	for from := 0; ; {
		i := bytes.IndexByte(status[from:], byte(plimsoll.WaitNoResource)) // rarer than the tag
		if i < 0 {
			return false
		}
		if from += i; from > 0 && status[from-1] == tag {
			return true
		}
		from++
	}
}

// BeginsWithKey reports whether an encoded record begins with its id. That is field 1, a text: the
// key of the record, or the part of the key before a zero byte.
func BeginsWithKey(data []byte, key string) bool {
	if len(data) < 3 || data[0] != 1<<3|byte(bytesType) {
		return false
	}
	n := int(data[1])
	return n > 0 && n < 0x80 && len(data) >= n+2 && len(key) >= n && string(data[2:n+2]) == key[:n] &&
		(len(key) == n || key[n] == 0)
}

// CheckFields fails if a field of an encoded message is malformed. It does not look into nested
// messages.
func CheckFields(data []byte) (err error) {
	for len(data) > 0 {
		if _, data, err = nextField(data); err != nil {
			return corrupt("a record", err)
		}
	}
	return nil
}
