package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds are those of one message that comes in.
type Bounds struct {
	Bytes   int // as it is sent, and inflated; above 0
	Decoded int // that its decoded form may take, as Footprint counts it; above 0
}

// RequestBounds are those of a request of a user or an agent, with so many bytes: what is read,
// inflated and decoded of it takes less than 64 MiB if the bytes are the default of a gateway.
func RequestBounds(bytes int) Bounds { return Bounds{Bytes: bytes, Decoded: maxDecoded} }

// maxDecoded is what the decoded form of a request takes at most.
const maxDecoded = 40 << 20

// Bounded is the option with which every service is served. No message is decoded, in binary form
// or as JSON, before its elements are counted, and a compressed one is inflated to its bound and no
// further.
func Bounded(b Bounds) connect.HandlerOption {
	return connect.WithHandlerOptions(
		BoundedPlain(b),
		connect.WithCompression(gzipName, b.newGzipReader, NewDeflater(gzip.DefaultCompression).newWriter),
	)
}

// BoundedPlain is Bounded for a service that takes and sends nothing compressed.
func BoundedPlain(b Bounds) connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithReadMaxBytes(b.Bytes), connect.WithCompression(gzipName, nil, nil),
		connect.WithCodec(&binaryCodec{bounds: b}), connect.WithCodec(&jsonCodec{"json", b}), connect.WithCodec(&jsonCodec{"json; charset=utf-8", b}))
}

// BoundedWeighed is BoundedPlain for messages in binary form only, and tells the footprint of each
// one right before it is decoded.
func BoundedWeighed(b Bounds, tell func(footprint int)) connect.HandlerOption {
	return connect.WithHandlerOptions(BoundedPlain(b), connect.WithCodec(&binaryCodec{b, tell}))
}

// BoundedClient is the option with which a service is called that may send too much: one of another
// machine.
func BoundedClient(b Bounds) connect.ClientOption {
	return connect.WithClientOptions(
		connect.WithReadMaxBytes(b.Bytes), connect.WithCodec(&binaryCodec{bounds: b}),
		connect.WithAcceptCompression(gzipName, b.newGzipReader, NewDeflater(gzip.DefaultCompression).newWriter))
}

// binaryCodec is connect's, behind Footprint.
type binaryCodec struct {
	bounds Bounds
	tell   func(footprint int) // nil: nobody asks
}

func (*binaryCodec) Name() string { return "proto" }

func (*binaryCodec) Marshal(message any) ([]byte, error) {
	return (&binaryCodec{}).MarshalAppend(nil, message)
}

// MarshalAppend is used by connect instead of Marshal where it has a buffer.
func (*binaryCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m) //nolint:wrapcheck // connect adds the message
}

func (*binaryCodec) MarshalStable(message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m) //nolint:wrapcheck // connect adds the message
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
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", message, err)
	}
	return nil
}

// jsonCodec is connect's, behind FootprintJSON.
type jsonCodec struct {
	name   string
	bounds Bounds
}

func (c *jsonCodec) Name() string { return c.name }

func (c *jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is used by connect instead of Marshal where it has a buffer.
func (*jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m) //nolint:wrapcheck // connect adds the message
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
	if len(data) == 0 {
		return errors.New("an empty body is no JSON object; write {} for a message without fields")
	}
	if _, err := FootprintJSON(data, m, c.bounds.Decoded); err != nil {
		return err
	}
	// People write JSON: a field that is not known is a mistake. Processes speak in binary form,
	// where it is one of a newer version and is kept.
	if err := CheckJSON(data, m); err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{RecursionLimit: 2 * maxDepth}).Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", message, err)
	}
	return nil
}

func asProto(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, plimsoll.Errorf(plimsoll.CodeInternal, "%T is no message of protobuf", message)
	}
	return m, nil
}
