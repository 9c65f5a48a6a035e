package gateway

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// intake is the body of an RPC. It reads each message whole, inflates it, and counts the bytes of
// its decoded form. All that stays within the bounds of one message and the budget of all requests.
// Read returns messages that are not compressed.
type intake struct {
	gateway *Gateway
	body    io.ReadCloser
	charge  *charge

	input      proto.Message // an empty message of the RPC's input type
	json       bool
	enveloped  bool // each message has a prefix; otherwise the body is one message
	compressed bool // the body is compressed, or each message whose prefix says so
	declared   int64

	ready []byte // checked bytes that Read has not returned yet
	done  error  // error behind the bytes of ready; nil: more may come
}

const (
	envelopePrefix     = 5
	envelopeCompressed = 1
	firstRead          = 4 << 10
	drainedMessages    = 2
)

// meter puts an intake in place of the body of an RPC. The body is read, inflated and counted
// within the bounds before connect sees it.
func (g *Gateway) meter(u *ongoing, r *http.Request) error {
	in := &u.intake
	*in = intake{
		gateway: g, body: r.Body, charge: &u.charge, input: g.methods[r.URL.Path].input, declared: r.ContentLength,
	}
	if !in.understands(r) { // connect refuses the request, and reads nothing
		return nil
	}
	r.Body = in
	return in.check(r.ContentLength)
}

// understands determines the encoding of a request's messages. It reports false for an encoding
// that connect refuses before it reads.
func (in *intake) understands(r *http.Request) bool {
	if in.input == nil || r.Method != http.MethodPost {
		return false
	}
	encoding := "Content-Encoding"
	kind, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	kind, isApplication := strings.CutPrefix(strings.TrimSpace(kind), "application/")
	protocol, codec, enveloped := strings.Cut(kind, "+")
	switch {
	case !isApplication:
		return false
	case kind == "proto", kind == "json":
		codec = kind
	case protocol == "connect" && enveloped:
		in.enveloped, encoding = true, "Connect-Content-Encoding"
	case protocol == "grpc" || protocol == "grpc-web":
		in.enveloped, encoding = true, "Grpc-Encoding"
	default:
		return false
	}
	in.json = codec == "json"
	switch r.Header.Get(encoding) {
	case "", "identity":
	case "gzip":
		in.compressed = true
		r.Header.Del(encoding)
	default:
		return false
	}
	return true
}

// check refuses a request by the length that it declares.
func (in *intake) check(declared int64) error {
	switch most := in.most() + envelopePrefix; {
	case declared > int64(most) && !in.enveloped:
		return in.refused(wire.TooLong(in.most()))
	case declared > 0:
		if err := in.charge.room(declared); err != nil {
			in.drain()
			return wire.ConnectError(err)
		}
	}
	return nil
}

func (in *intake) most() int { return in.gateway.cfg.MaxRequestBytes }

// refused counts the refusal of a message, and returns it as an error that connect passes on.
func (in *intake) refused(err error) error {
	bound := boundMessageBytes
	if plimsoll.CodeOf(err) == plimsoll.CodeInvalid {
		bound = boundMessageElements
	}
	in.gateway.metrics.refused(bound)
	in.drain()
	return wire.ConnectError(err)
}

// hold acquires n bytes, or returns the refusal as an error that connect passes on.
func (in *intake) hold(n int) error {
	err := in.charge.hold(n)
	if err != nil {
		in.drain()
	}
	return wire.ConnectError(err)
}

// drain gives back the bytes that the request holds, and then reads a bounded rest of the body and
// drops it. A connection that is closed with bytes unread is reset, and its caller would not see
// the refusal.
func (in *intake) drain() {
	in.charge.release(int(in.charge.held))
	_, _ = io.CopyN(io.Discard, in.body, drainedMessages*int64(in.most())) // the rest is dropped, so its error is too
}

// Close implements io.Closer.
func (in *intake) Close() error { return in.body.Close() } //nolint:wrapcheck // intake stands in for the body

// Read implements io.Reader.
func (in *intake) Read(p []byte) (int, error) {
	for len(in.ready) == 0 && in.done == nil {
		in.ready, in.done = in.next()
	}
	if len(in.ready) == 0 {
		return 0, in.done
	}
	n := copy(p, in.ready)
	in.ready = in.ready[n:]
	return n, nil
}

// whole is message for a caller that may leave the body to Read. That returns it too, or the error.
func (in *intake) whole(accept func(body []byte) bool) (data []byte, footprint int, err error) {
	data, footprint, err = in.message(accept)
	in.ready, in.done = data, cmp.Or(err, io.EOF)
	return data, footprint, err
}

// message reads a body that has no prefixes, and gives it to accept before it is counted. Unless
// that takes it, it is counted and returned with its footprint.
func (in *intake) message(accept func(body []byte) bool) (data []byte, footprint int, err error) {
	if data, err = in.readAll(); err != nil {
		return nil, 0, err
	}
	if !in.compressed && accept(data) {
		return data, 0, nil
	}
	return in.unpack(data, in.compressed)
}

// next reads the next message, with its prefix if it has one.
func (in *intake) next() ([]byte, error) {
	if !in.enveloped {
		data, _, err := in.message(func([]byte) bool { return false })
		return data, cmp.Or(err, io.EOF)
	}
	prefix := make([]byte, envelopePrefix)
	if n, err := io.ReadFull(in.body, prefix); err != nil {
		return prefix[:n], err //nolint:wrapcheck // connect makes its error of it
	}
	length := binary.BigEndian.Uint32(prefix[1:])
	if int64(length) > int64(in.most()) {
		return nil, in.refused(wire.TooLong(in.most()))
	}
	data, err := in.read(int(length))
	if err != nil {
		return nil, err
	}
	if compressed := prefix[0]&envelopeCompressed != 0; !compressed || in.compressed {
		if data, _, err = in.unpack(data, compressed); err != nil {
			return nil, err
		}
		prefix[0] &^= envelopeCompressed
		binary.BigEndian.PutUint32(prefix[1:], uint32(len(data)))
	}
	return append(prefix, data...), nil
}

// readAll reads the body to its end.
func (in *intake) readAll() ([]byte, error) {
	data, err := in.readUpTo(in.most() + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(data) > in.most():
		return nil, in.refused(wire.TooLong(in.most()))
	}
	return data, nil
}

// read reads exactly length bytes.
func (in *intake) read(length int) ([]byte, error) {
	data, err := in.readUpTo(length)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}

// readUpTo reads most bytes, or fewer and the error that ended them. Bytes are acquired as they
// come, so that a caller that sends none takes none.
func (in *intake) readUpTo(most int) ([]byte, error) {
	var data []byte
	size := min(most, firstRead)
	if in.declared >= 0 && in.declared < firstRead {
		size = min(most, int(in.declared)+1) // one more shows the end
	}
	for {
		if err := in.hold(size - cap(data)); err != nil {
			return nil, err
		}
		wider := make([]byte, len(data), size)
		copy(wider, data)
		data = wider
		for len(data) < size {
			n, err := in.body.Read(data[len(data):size])
			data = data[:len(data)+n]
			if err != nil && len(data) < most {
				return data, err //nolint:wrapcheck // connect makes its error of it
			}
		}
		if size == most {
			return data, nil
		}
		wanted := 4 * size
		if in.declared >= int64(size) {
			wanted = min(wanted, int(in.declared)+1)
		}
		size = min(most, wanted)
	}
}

// unpack inflates a message if it is compressed, and acquires the bytes of its decoded form, its
// footprint.
func (in *intake) unpack(data []byte, compressed bool) (out []byte, footprint int, err error) {
	if compressed && len(data) > 0 {
		if err := in.hold(wire.InflateBytes); err != nil {
			return nil, 0, err
		}
		packed := cap(data)
		out, err := in.gateway.inflater.Inflate(data, in.most(), in.hold)
		switch {
		case isRPC(err):
			return nil, 0, err // there was no room
		case err != nil:
			return nil, 0, in.refused(err)
		}
		in.charge.release(wire.InflateBytes + packed)
		data = out
	}
	count := wire.Footprint
	if in.json {
		count = wire.FootprintJSON
	}
	footprint, err = count(data, in.input, wire.RequestBounds(in.most()).Decoded)
	if err != nil {
		return nil, 0, in.refused(err)
	}
	if err := in.hold(len(data) + footprint); err != nil { // connect copies the message
		return nil, 0, err
	}
	if in.json {
		if err := wire.CheckJSON(data, in.input); err != nil {
			in.drain()
			return nil, 0, wire.ConnectError(err)
		}
	}
	return data, footprint, nil
}

func isRPC(err error) bool {
	var rpc *connect.Error
	return errors.As(err, &rpc)
}

// method describes an RPC for the steps before connect sees its request.
type method struct {
	input   proto.Message // an empty message of its input type
	streams bool          // a call lasts as long as its caller wants
}

// methodsOf returns the methods of services by path.
func methodsOf(services ...string) map[string]method {
	known := map[string]method{}
	for _, name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			panic(err) // a broken invariant: the service's code is linked in
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			input, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
			if err != nil {
				panic(err) // the same
			}
			known["/"+name+"/"+string(m.Name())] = method{input.Zero().Interface(), m.IsStreamingServer()}
		}
	}
	return known
}
