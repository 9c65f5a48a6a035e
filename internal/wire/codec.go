package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"regexp"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds are the bounds of one incoming message.
type Bounds struct {
	Bytes   int // both as sent and inflated; above 0
	Decoded int // size of its decoded form, as Footprint counts it; above 0
	// Checked tells that JSON has passed FootprintJSON and CheckJSON before connect gets it, so
	// that it is not gone through again.
	Checked bool
}

// RequestBounds returns the bounds of a user's or an agent's request of at most so many bytes. With
// a gateway's default, the bytes read, inflated and decoded for it stay below 64 MiB.
func RequestBounds(bytes int) Bounds { return Bounds{Bytes: bytes, Decoded: maxDecoded} }

// maxDecoded bounds the decoded form of a request, in bytes.
const maxDecoded = 40 << 20

// Bounded is the option for every service. Each message, binary or JSON, is counted before it is
// decoded, and a compressed one is inflated only up to its bound.
func Bounded(b Bounds) connect.HandlerOption {
	return connect.WithHandlerOptions(
		BoundedPlain(b),
		connect.WithCompression(gzipName, b.newGzipReader, NewDeflater(gzip.DefaultCompression).newWriter),
	)
}

// BoundedPlain is Bounded for a service without compression.
func BoundedPlain(b Bounds) connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithReadMaxBytes(b.Bytes), connect.WithCompression(gzipName, nil, nil),
		connect.WithCodec(&binaryCodec{bounds: b}), connect.WithCodec(&jsonCodec{"json", b}),
		connect.WithCodec(&jsonCodec{"json; charset=utf-8", b}),
	)
}

// BoundedWeighed is BoundedPlain for binary messages only. It calls tell with the footprint of each
// message just before the message is decoded.
func BoundedWeighed(b Bounds, tell func(footprint int)) connect.HandlerOption {
	return connect.WithHandlerOptions(BoundedPlain(b), connect.WithCodec(&binaryCodec{b, tell}))
}

// BoundedClient is the option for calls to a service of another machine, which might send too much.
func BoundedClient(b Bounds) connect.ClientOption {
	return connect.WithClientOptions(
		connect.WithReadMaxBytes(b.Bytes), connect.WithCodec(&binaryCodec{bounds: b}),
		connect.WithAcceptCompression(gzipName, b.newGzipReader, NewDeflater(gzip.DefaultCompression).newWriter))
}

// binaryCodec is connect's binary codec behind Footprint.
type binaryCodec struct {
	bounds Bounds
	tell   func(footprint int) // may be nil
}

func (*binaryCodec) Name() string { return "proto" }

func (*binaryCodec) Marshal(message any) ([]byte, error) {
	return (&binaryCodec{}).MarshalAppend(nil, message)
}

// MarshalAppend is Marshal into a buffer, which connect prefers.
func (*binaryCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	if a, ready := message.(*Answer); ready {
		return a.appendTo(dst, false)
	}
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m) //nolint:wrapcheck // connect wraps it
}

func (*binaryCodec) MarshalStable(message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m) //nolint:wrapcheck // connect wraps it
}

func (*binaryCodec) IsBinary() bool { return true }

func (c *binaryCodec) Unmarshal(data []byte, message any) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	footprint, err := Footprint(data, m, c.bounds.Decoded)
	if err != nil {
		return err
	}
	if c.tell != nil {
		c.tell(footprint)
	}
	if proto.Unmarshal(data, m) != nil { // its error says no more
		return plimsoll.Invalid("", "the body is no %s in the binary form of protobuf", nameOf(m))
	}
	return nil
}

// nameOf returns the name of a message's type, as the reference of the calls has it.
func nameOf(m proto.Message) protoreflect.Name { return m.ProtoReflect().Descriptor().Name() }

// jsonCodec is connect's JSON codec behind FootprintJSON and CheckJSON.
type jsonCodec struct {
	name   string
	bounds Bounds
}

func (c *jsonCodec) Name() string { return c.name }

func (c *jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is Marshal into a buffer, which connect prefers.
func (*jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	if a, ready := message.(*Answer); ready {
		return a.appendTo(dst, true)
	}
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m) //nolint:wrapcheck // connect wraps it
}

func (c *jsonCodec) MarshalStable(message any) ([]byte, error) {
	data, err := c.Marshal(message)
	if err != nil {
		return nil, err
	}
	compact := bytes.NewBuffer(data[:0])
	if err := json.Compact(compact, data); err != nil {
		return nil, fmt.Errorf("compact the JSON of %T: %w", message, err)
	}
	return compact.Bytes(), nil
}

func (*jsonCodec) IsBinary() bool { return false }

func (c *jsonCodec) Unmarshal(data []byte, message any) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	if err := c.check(data, m); err != nil {
		return err
	}
	if err := jsonRequests.Unmarshal(data, m); err != nil {
		return plimsoll.Invalid("", "the body is no %s%s: a text is no UTF-8 or no base64, or a key comes twice, "+
			"or a number is out of range", nameOf(m), placeOf(err))
	}
	return nil
}

// placed finds the place in an error of the decoder, whose other words are not for callers.
var placed = regexp.MustCompile(`\(line (\d+):(\d+)\)`)

// placeOf returns the place of a fault that the decoder has found; empty if it does not say.
func placeOf(err error) string {
	if place := placed.FindStringSubmatch(err.Error()); place != nil {
		return ", at line " + place[1] + ", column " + place[2]
	}
	return ""
}

// check counts a message and looks for unknown names. People write JSON, so an unknown field is a
// mistake. Processes use the binary form, in which an unknown field comes from a newer version and
// is kept.
func (c *jsonCodec) check(data []byte, m proto.Message) error {
	if c.bounds.Checked {
		return nil
	}
	if _, err := FootprintJSON(data, m, c.bounds.Decoded); err != nil {
		return err
	}
	return CheckJSON(data, m)
}

var jsonRequests = protojson.UnmarshalOptions{RecursionLimit: 2 * maxDepth} //nolint:gochecknoglobals // constant

// DecodeChecked decodes a request that has passed Footprint, or FootprintJSON and CheckJSON. It
// fails where the codecs fail, and the codecs have the words for the caller.
func DecodeChecked(data []byte, json bool, m proto.Message) error {
	if json {
		return jsonRequests.Unmarshal(data, m) //nolint:wrapcheck // the codec wraps it
	}
	return proto.Unmarshal(data, m) //nolint:wrapcheck // the codec wraps it
}

func asProto(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, plimsoll.Errorf(plimsoll.CodeInternal, "%T is no message of protobuf", message)
	}
	return m, nil
}
