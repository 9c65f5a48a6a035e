package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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
		`{"\u0073pec":{"i\u0064":"x"}}`,
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

// A list of texts is passed over without a path for each.
func TestAListOfTextsIsCheckedWithoutAllocations(t *testing.T) {
	data := []byte(`{"spec":{"groups":[{"command":["a"` + strings.Repeat(`,"b"`, 10_000) + `]}]}}`)
	allocations := testing.AllocsPerRun(3, func() {
		if err := CheckJSON(data, &pb.SubmitJobRequest{}); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 100 {
		t.Errorf("%.0f allocations", allocations)
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
