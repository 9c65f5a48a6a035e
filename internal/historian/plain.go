package historian

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// PlainRoot is the prefix of the questions that are asked with GET and answered in JSON.
const PlainRoot = "/history/v1/"

// plain returns the handler of the paths below PlainRoot. Each takes the fields of a call as
// parameters, and answers as the call does.
func (s *service) plain() http.Handler {
	questions := map[string]func(ctx context.Context, q url.Values) (proto.Message, error){
		"timeline": asked(s.h.timeline), "usage": asked(s.h.usage), "jobs": asked(s.h.jobs), "at": asked(s.h.clusterAt),
		"status": asked(s.h.status),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, PlainRoot)
		question := questions[name]
		switch {
		case question == nil:
			writeError(w, plimsoll.Errorf(plimsoll.CodeNotFound,
				"there is nothing at %.80s; there are at, jobs, status, timeline and usage below %s", r.URL.Path, PlainRoot))
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			writeJSON(w, http.StatusMethodNotAllowed,
				plainError{plimsoll.CodeInvalid.String(), "the history is only read: use GET"})
			return
		}
		var body bytes.Buffer
		err := s.answer(r.Context(), name, func(ctx context.Context) error {
			parameters, err := url.ParseQuery(r.URL.RawQuery)
			if err != nil {
				return plimsoll.Invalid("query", "cannot be read: %v", err)
			}
			m, err := question(ctx, parameters)
			if err != nil {
				return err
			}
			encoded, err := protojson.Marshal(m)
			if err != nil {
				return err
			}
			return json.Compact(&body, encoded) // protojson puts spaces in, some of the time
		})
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		body.WriteByte('\n')
		_, _ = w.Write(body.Bytes()) // the caller went away; there is nobody to tell
	})
}

// asked returns a question that takes its request from parameters.
func asked[Req any, P interface {
	*Req
	proto.Message
}, Res proto.Message](
	answer func(context.Context, P) (Res, error),
) func(ctx context.Context, q url.Values) (proto.Message, error) {
	return func(ctx context.Context, q url.Values) (proto.Message, error) {
		m := P(new(Req))
		if err := readParameters(q, m.ProtoReflect()); err != nil {
			return nil, err
		}
		return answer(ctx, m)
	}
}

// readParameters sets the fields of a request by the names of parameters.
func readParameters(q url.Values, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		field := fields.ByName(protoreflect.Name(name))
		if field == nil {
			var known []string
			for i := range fields.Len() {
				known = append(known, string(fields.Get(i).Name()))
			}
			short := fmt.Sprintf("%.80s", name)
			return plimsoll.Invalid(short, "is no parameter here; %s", plimsoll.Suggest(name, known))
		}
		values := q[name]
		if !field.IsList() && len(values) > 1 {
			return plimsoll.Invalid(name, "is given %d times; give it once", len(values))
		}
		for _, text := range values {
			value, err := parameter(field, text)
			if err != nil {
				return err
			}
			if field.IsList() {
				m.Mutable(field).List().Append(value)
			} else {
				m.Set(field, value)
			}
		}
	}
	return nil
}

// maxText bounds a name or path in a query, in bytes. Errors may show it, quoted.
const maxText = 800

// parameter reads one value. A number of 64 bits is a time, or a number.
func parameter(field protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	name := string(field.Name())
	switch field.Kind() {
	case protoreflect.Int64Kind:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return protoreflect.ValueOfInt64(n), nil
		}
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			if at.Before(time.Unix(0, 1)) || at.After(time.Unix(0, math.MaxInt64)) {
				return protoreflect.Value{}, plimsoll.Invalid(name, "%.80q is not between 1970 and 2262", text)
			}
			return protoreflect.ValueOfInt64(at.UnixNano()), nil
		}
		return protoreflect.Value{}, plimsoll.Invalid(name,
			"%.80q is neither a time nor a number; write for example 2026-11-23T10:00:00Z", text)
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return protoreflect.Value{}, plimsoll.Invalid(name, "%.80q is no number", text)
		}
		return protoreflect.ValueOfInt32(int32(n)), nil
	case protoreflect.EnumKind:
		return partNumber(name, text)
	default:
		if len(text) > maxText && name != "cursor" {
			return protoreflect.Value{}, plimsoll.Invalid(
				name, "has %d bytes, and at most %d are possible", len(text), maxText,
			)
		}
		return protoreflect.ValueOfString(text), nil
	}
}

// partNumber reads the one enumeration of the requests.
func partNumber(name, text string) (protoreflect.Value, error) {
	const prefix = "CLUSTER_PART_"
	number, ok := pb.ClusterPart_value[prefix+strings.ToUpper(text)]
	if !ok || number == 0 {
		return protoreflect.Value{}, plimsoll.Invalid(name, "%.80q is none of jobs, nodes, queues and tasks", text)
	}
	return protoreflect.ValueOfEnum(protoreflect.EnumNumber(number)), nil
}
