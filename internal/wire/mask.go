package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds of the paths of a mask.
const (
	MaxMaskPaths = 100
	maxMaskPath  = 256 // bytes
)

// Mask is a choice of fields of a message. It is applied to encoded records, which are not decoded:
// the bytes of the wanted fields are copied. The fields that identify an object always stay.
//
//	mask, err := wire.CompileMask(new(pb.JobStatus).ProtoReflect().Descriptor(), []string{"state", "groups.counts"})
//	short, err := mask.Append(nil, record)
type Mask struct {
	fields []maskField // by number
}

// maskField is the choice for one field. Its zero value leaves the field out.
type maskField struct {
	whole bool
	inner *Mask // of the fields of a message that are wanted; nil: none, or whole is set
}

// identities are the fields that a mask always keeps, by message.
var identities = map[protoreflect.Name][]protoreflect.Name{ //nolint:gochecknoglobals // constant
	"JobStatus":   {"id", "uid"},
	"JobSpec":     {"id"},
	"Task":        {"job", "group", "index"},
	"GroupSpec":   {"name"},
	"GroupStatus": {"name"},
	"Attempt":     {"number"},
}

// CompileMask returns the mask of some paths into a message, such as "state" and "groups.counts".
// Names are those of the proto file or of JSON. It is nil without paths: all fields are wanted. An
// error has CodeInvalid and names the path.
func CompileMask(m protoreflect.MessageDescriptor, paths []string) (*Mask, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	if len(paths) > MaxMaskPaths {
		return nil, plimsoll.Invalid("fields", "there are %d; give at most %d", len(paths), MaxMaskPaths)
	}
	mask := newMask(m)
	for i, path := range paths {
		if err := mask.add(m, path); err != nil {
			return nil, plimsoll.Invalid(fmt.Sprintf("fields[%d]", i), "%s", err)
		}
	}
	return mask, nil
}

// newMask returns a mask of the fields that identify an object.
func newMask(m protoreflect.MessageDescriptor) *Mask {
	mask := &Mask{}
	for _, name := range identities[m.Name()] {
		mask.at(m.Fields().ByName(name)).whole = true
	}
	return mask
}

// at returns the choice for a field.
func (k *Mask) at(f protoreflect.FieldDescriptor) *maskField {
	for len(k.fields) <= int(f.Number()) {
		k.fields = append(k.fields, maskField{})
	}
	return &k.fields[f.Number()]
}

// add adds a path.
func (k *Mask) add(m protoreflect.MessageDescriptor, path string) error {
	if len(path) > maxMaskPath {
		return fmt.Errorf("is %d bytes long; at most %d are possible", len(path), maxMaskPath)
	}
	for rest, whole := path, false; !whole; {
		var name string
		name, rest, _ = strings.Cut(rest, ".")
		f := fieldNamed(m, name)
		if f == nil {
			return unknownPath(m, path, name)
		}
		at := k.at(f)
		if whole = rest == ""; whole {
			*at = maskField{whole: true}
			return nil
		}
		if f.IsMap() || f.Message() == nil {
			return fmt.Errorf("%q has no fields below %s; name it without them", path, name)
		}
		if at.whole {
			return nil
		}
		if at.inner == nil {
			at.inner = newMask(f.Message())
		}
		k, m = at.inner, f.Message()
	}
	return nil
}

func fieldNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := m.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	return m.Fields().ByJSONName(name)
}

func unknownPath(m protoreflect.MessageDescriptor, path, name string) error {
	var names []string
	for i := range m.Fields().Len() {
		names = append(names, m.Fields().Get(i).JSONName())
	}
	known := "there are " + strings.Join(names, ", ")
	if near := plimsoll.Nearest(name, names); near != "" {
		known = fmt.Sprintf("did you mean %q?", near)
	}
	return fmt.Errorf("%q: %s has no field %q; %s", path, m.Name(), name, known)
}

// Inner returns the mask of the fields of a field that is a message. wanted is false if the field
// is left out, and the mask is nil if all its fields are wanted. A nil mask wants everything.
func (k *Mask) Inner(number uint64) (inner *Mask, wanted bool) {
	if k == nil {
		return nil, true
	}
	f := k.field(number)
	return f.inner, f.whole || f.inner != nil
}

func (k *Mask) field(number uint64) maskField {
	if number < uint64(len(k.fields)) {
		return k.fields[number]
	}
	return maskField{}
}

// Append appends the wanted fields of an encoded message. It fails with CodeCorrupt if the message
// is malformed; nested messages are looked at only if a path leads into them.
func (k *Mask) Append(dst, record []byte) ([]byte, error) {
	for data := record; len(data) > 0; {
		f, rest, err := nextField(data)
		if err != nil {
			return nil, corrupt("a record for its mask", err)
		}
		raw := data[:len(data)-len(rest)]
		data = rest
		switch want := k.field(f.tag >> 3); {
		case want.whole:
			dst = append(dst, raw...)
		case want.inner != nil && f.tag&7 == bytesType:
			size, err := want.inner.size(f.b)
			if err != nil {
				return nil, err
			}
			if dst, err = want.inner.Append(appendHeader(dst, f.tag>>3, size), f.b); err != nil {
				return nil, err
			}
		}
	}
	return dst, nil
}

// size returns the number of bytes that Append appends.
func (k *Mask) size(record []byte) (size int, err error) {
	for data := record; len(data) > 0; {
		f, rest, err := nextField(data)
		if err != nil {
			return 0, corrupt("a record for its mask", err)
		}
		raw := len(data) - len(rest)
		data = rest
		switch want := k.field(f.tag >> 3); {
		case want.whole:
			size += raw
		case want.inner != nil && f.tag&7 == bytesType:
			inner, err := want.inner.size(f.b)
			if err != nil {
				return 0, err
			}
			size += protowire.SizeVarint(f.tag>>3<<3|bytesType) + protowire.SizeBytes(inner)
		}
	}
	return size, nil
}
