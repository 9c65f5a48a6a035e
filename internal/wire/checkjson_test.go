package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// FuzzCheckJSON: CheckJSON refuses exactly the fields and words that a decoder with DiscardUnknown
// drops, and a count that is written as zero.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"spec":{"id":"x","groups":[{"name":"a","count":1,"command":["true","\\\"]}"]}]}}`,
		`{"spec":{"groups":[{"cuont":1}]}}`, ` { "spec" : null } `, `{"spec":{"groups":[{"count":0}]}}`,
		`{"spec":{"groups":[{"class":"CLASS_BURSTABLE"},{"class":"CLASS_BRUSTABLE"},{"class":2}]}}`,
		`{"spec":{"labels":{"a":"b","}":"{"},"groups":[{"env":{"spec":"x"},"retry":{"kind":9}}]}}`,
		`{"spec":[1,2],"x":{}}`, `[{"spec":1}]`, `{"spec":{"groups":{"a":1}}}`, `{"":0}`,
		`{"spec":{"groups":[{"class":null}]}}`,
		`{"spec":{"groups":[{"constraints":{"traits":{"ssd":{"flag":true}}}}]}} x`, `"spec"`, ``,
		`{"\u0073pec":{"i\u0064":"x"}}`, `{"spec":{"groups":[null]}}`, `{"spec":{"labels":{"a":null}}}`,
		`{"spec":{"groups":[{"maxRuntimeNanos":"9223372036854775807","priority":-2147483648}]}}`,
		`{"spec":{"groups":[{"maxRuntimeNanos":9223372036854775808,"priority":1e9,"count":"1.0"}]}}`,
		`{"spec":{"groups":[{"constraints":{"class":{"a":"NaN","b":1e400,"c":"-Infinity","d":" 1"}}}]}}`,
		`{"spec":{"id":1,"labels":[]},"spec":null}`, `{"spec":{"id":null,"id":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decode := func(options protojson.UnmarshalOptions) (proto.Message, error) {
			options.RecursionLimit = 2 * maxDepth
			m := &pb.SubmitJobRequest{}
			return m, options.Unmarshal(data, m)
		}
		_, strict := decode(protojson.UnmarshalOptions{})
		_, lax := decode(protojson.UnmarshalOptions{DiscardUnknown: true})
		switch err := CheckJSON(data, &pb.SubmitJobRequest{}); {
		case err == nil && lax == nil && strict != nil:
			t.Errorf("%q was taken, although %v", data, strict)
		case err != nil && strict == nil && CheckJSON(withoutZeros(data), &pb.SubmitJobRequest{}) != nil:
			t.Errorf("%q was refused: %v", data, err)
		}
	})
}

// The error of a fault has the path of the field, its value and the value that is expected.
func TestFaultsOfJSONNameTheFieldAndTheFix(t *testing.T) {
	group := func(fields string) string { return `{"spec":{"groups":[{` + fields + `}]}}` }
	for data, want := range map[string]string{
		``:                                "the body is empty; write {} for a message without fields",
		` `:                               "the body is not JSON: it ends too early, at line 1, column 2; close each",
		`{"spec":`:                        "the body is not JSON: it ends too early, at line 1, column 9; close each",
		"{\n\"spec\": {é}}":               "the body is not JSON: there is a wrong 'é' at line 2, column 10; names and texts",
		`{"spec":{},}`:                    "the body is not JSON: there is a wrong '}' at line 1, column 12; names",
		`[1]`:                             "the body is a list; an object in braces is expected, such as {}",
		`null`:                            "the body is null; an object in braces is expected",
		`{"spec":"x"}`:                    `spec: is "x"; an object in braces is expected`,
		`{"spec":{"id":5}}`:               "spec.id: is 5; a text in quotes is expected",
		`{"spec":{"id":[5]}}`:             "spec.id: is a list; a text in quotes is expected",
		`{"spec":{"groups":{"count":1}}}`: "spec.groups: is an object; a list in brackets is expected",
		`{"spec":{"groups":[{},3]}}`:      "spec.groups[1]: is 3; an object in braces is expected",
		`{"spec":{"labels":{"a":true}}}`:  "spec.labels.a: is true; a text in quotes is expected",
		`{"spec":{"id":"a","id":"b"}}`:    "spec.id: comes twice; give it once",
		group(`"count":"3x"`):             `spec.groups[0].count: is "3x"; a whole number from -2147483648 to 2147483647 is`,
		group(`"count":1.5`):              "spec.groups[0].count: is 1.5; a whole number from -2147483648 to",
		group(`"count":99999999999`):      "spec.groups[0].count: is 99999999999; a whole number from -2147483648 to",
		group(`"maxRuntimeNanos":true`):   "spec.groups[0].maxRuntimeNanos: is true; a whole number from -9223372036854775808 to 9223372036854775807 is",
		group(`"command":["a",null]`):     "spec.groups[0].command[1]: is null; a text in quotes is expected",
		group(`"class":[]`):               "spec.groups[0].class: is a list; possible are CLASS_",
		group(`"constraints":{"class":{"a":""}}`): `spec.groups[0].constraints.class.a: is ""; a number is expected`,
	} {
		if err := CheckJSON([]byte(data), &pb.SubmitJobRequest{}); plimsoll.CodeOf(err) != plimsoll.CodeInvalid ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", data, err, want)
		}
	}
}

// Fields of which a message has only one exclude each other.
func TestFieldsThatExcludeEachOtherAreNamed(t *testing.T) {
	err := CheckJSON([]byte(`{"action":{},"nodeQos":null,"taskQos":{}}`), &pb.Policy{})
	const want = "taskQos: comes with another field that excludes it; give only one of action, taskQos, nodeQos"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// The error of a fault that only the decoder finds has no names of Go's types.
func TestWhatTheDecoderRefusesIsToldInPlainWords(t *testing.T) {
	bounds := Bounds{Bytes: 1 << 20, Decoded: 1 << 20}
	for _, data := range []string{
		`{"spec":{"labels":{"a":"1","a":"2"}}}`, "{\"spec\":{\"id\":\"\xff\"}}", `{"spec":{"id":"\ud800"}}`,
	} {
		err := (&jsonCodec{"json", bounds}).Unmarshal([]byte(data), &pb.SubmitJobRequest{})
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid ||
			!strings.HasPrefix(err.Error(), "the body is no SubmitJobRequest") {
			t.Errorf("%s: %v", data, err)
		}
	}
	err := (&binaryCodec{bounds: bounds}).Unmarshal([]byte{10, 2, 8}, &pb.SubmitJobRequest{})
	if err == nil || strings.Contains(err.Error(), "proto:") || strings.Contains(err.Error(), "plimsollv1") {
		t.Errorf("binary: %v", err)
	}
}

// A count of zero is refused however it is written.
func TestACountOfZeroIsRefused(t *testing.T) {
	for count, refused := range map[string]bool{
		`0`: true, `"0"`: true, `0.00`: true, `-0`: true, `0e5`: true, `"\u0030"`: true,
		`1`: false, `"10"`: false, `0.1e1`: false, `null`: false,
	} {
		err := CheckJSON([]byte(`{"spec":{"groups":[{"count":`+count+`}]}}`), &pb.SubmitJobRequest{})
		if (err != nil) != refused {
			t.Errorf("%s: %v", count, err)
		}
	}
}

// A list of texts or numbers is checked without a path for each.
func TestALongListIsCheckedWithoutAllocations(t *testing.T) {
	for _, test := range []struct {
		data string
		m    proto.Message
	}{
		{`{"spec":{"groups":[{"command":["a"` + strings.Repeat(`,"b"`, 10_000) + `]}]}}`, &pb.SubmitJobRequest{}},
		{`{"states":[1` + strings.Repeat(`,2`, 10_000) + `]}`, &pb.ListJobsRequest{}},
	} {
		allocations := testing.AllocsPerRun(3, func() {
			if err := CheckJSON([]byte(test.data), test.m); err != nil {
				t.Fatal(err)
			}
		})
		if allocations > 100 {
			t.Errorf("%.40s…: %.0f allocations", test.data, allocations)
		}
	}
}

// withoutZeros changes each zero, for whether one was the reason of a refusal.
func withoutZeros(data []byte) []byte {
	changed := make([]byte, len(data))
	for i, b := range data {
		if changed[i] = b; b == '0' {
			changed[i] = '1'
		}
	}
	return changed
}
