package plimsoll_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func TestParseQuantityReadsWhatKubernetesWrites(t *testing.T) {
	for _, tc := range []struct {
		resource, text string
		want           int64
	}{
		// cpu is in milli-cores
		{plimsoll.CPU, "0", 0},
		{plimsoll.CPU, "2", 2000},
		{plimsoll.CPU, "500m", 500},
		{plimsoll.CPU, "1.5", 1500},
		{plimsoll.CPU, ".5", 500},
		{plimsoll.CPU, "2.", 2000},
		{plimsoll.CPU, "+1", 1000},
		{plimsoll.CPU, "-0", 0},
		{plimsoll.CPU, "1k", 1_000_000},
		{plimsoll.CPU, "250000u", 250},
		{plimsoll.CPU, "250000000n", 250},
		{plimsoll.CPU, " 1 ", 1000},
		// memory and disk are in bytes
		{plimsoll.Memory, "128", 128},
		{plimsoll.Memory, "64Mi", 64 << 20},
		{plimsoll.Memory, "1.5Gi", 3 << 29},
		{plimsoll.Memory, "2G", 2_000_000_000},
		{plimsoll.Memory, "1e3", 1000},
		{plimsoll.Memory, "1E3", 1000},
		{plimsoll.Memory, "12e-1", 2},
		{plimsoll.Memory, "1e+3", 1000},
		{plimsoll.Disk, "1Ki", 1 << 10},
		{plimsoll.Disk, "3Ti", 3 << 40},
		{plimsoll.Disk, "8Pi", 1 << 53},
		{plimsoll.Disk, "5T", 5_000_000_000_000},
		{plimsoll.Disk, "5P", 5_000_000_000_000_000},
		{plimsoll.Disk, "0.001E", 1_000_000_000_000_000},
		// anything else is a count
		{"nvidia.com/gpu", "4", 4},
		{"licences", "2k", 2000},
		// a fraction of the unit is rounded up
		{plimsoll.CPU, "0.0001", 1},
		{plimsoll.CPU, "1n", 1},
		{plimsoll.Memory, "1m", 1},
		{plimsoll.Memory, "1e-99", 1},
		{"nvidia.com/gpu", "1.5", 2},
	} {
		t.Run(tc.resource+"="+tc.text, func(t *testing.T) {
			got, err := plimsoll.ParseQuantity(tc.resource, tc.text)
			if err != nil || got != tc.want {
				t.Errorf("got %d, %v; want %d", got, err, tc.want)
			}
		})
	}
}

func TestParseQuantitySaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ resource, text, want string }{
		{plimsoll.CPU, "", "quantity is empty; write for example 500m or 2"},
		{plimsoll.Memory, "  ", "quantity is empty; write for example 64Mi or 2G"},
		{"gpu", "", "quantity is empty; write for example 1"},
		{plimsoll.CPU, "-1", `quantity "-1" is negative; give zero or more`},
		{plimsoll.CPU, "-1e30", "is negative"},
		{plimsoll.CPU, "1e30", "is absurdly large; the largest possible is"},
		{plimsoll.Memory, "9Ei", "is absurdly large; the largest possible is 8Pi"},
		{plimsoll.Memory, "9007199254740993", "is absurdly large"},
		{plimsoll.CPU, "two", "cannot be read; write for example 500m or 2"},
		{plimsoll.CPU, "1,5", "cannot be read"},
		{plimsoll.CPU, "1 5", "cannot be read"},
		{plimsoll.CPU, "m", "cannot be read"},
		{plimsoll.CPU, ".", "cannot be read"},
		{plimsoll.CPU, "+-1", "cannot be read"},
		{plimsoll.CPU, "--1", "cannot be read"},
		{plimsoll.CPU, "1.2.3", "cannot be read"},
		{plimsoll.CPU, "0x10", "cannot be read"},
		{plimsoll.CPU, "1_000", "cannot be read"},
		{plimsoll.CPU, "1/2", "cannot be read"},
		{plimsoll.CPU, "NaN", "cannot be read"},
		{plimsoll.CPU, "Inf", "cannot be read"},
		{plimsoll.CPU, "1e1000000000", "cannot be read"},
		{plimsoll.CPU, strings.Repeat("9", 65), "cannot be read"},
		{plimsoll.Memory, "64MiB", "cannot be read"},
		{plimsoll.Memory, "64mi", "cannot be read"},
		{plimsoll.Memory, "64K", "cannot be read"},
		{plimsoll.Memory, "1e3Mi", "cannot be read"}, // an exponent is a suffix of its own
	} {
		t.Run(tc.resource+"="+tc.text, func(t *testing.T) {
			got, err := plimsoll.ParseQuantity(tc.resource, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %d, %v; want an error with %q", got, err, tc.want)
			}
		})
	}
}

func TestFormatQuantityPrintsForPeople(t *testing.T) {
	for _, tc := range []struct {
		resource string
		amount   int64
		want     string
	}{
		{plimsoll.CPU, 0, "0"},
		{plimsoll.CPU, 500, "500m"},
		{plimsoll.CPU, 2000, "2"},
		{plimsoll.CPU, -1500, "-1500m"},
		{plimsoll.Memory, 0, "0"},
		{plimsoll.Memory, 1000, "1000"},
		{plimsoll.Memory, 64 << 20, "64Mi"},
		{plimsoll.Memory, 1536 << 20, "1536Mi"},
		{plimsoll.Disk, plimsoll.MaxAmount, "8Pi"},
		{plimsoll.Disk, -(1 << 30), "-1Gi"},
		{"nvidia.com/gpu", 1024, "1024"},
	} {
		if got := plimsoll.FormatQuantity(tc.resource, tc.amount); got != tc.want {
			t.Errorf("%d of %s: got %q, want %q", tc.amount, tc.resource, got, tc.want)
		}
	}
}

// FuzzParseQuantity: every parsed quantity is within bounds, and FormatQuantity prints it so that
// it is parsed to the same amount.
func FuzzParseQuantity(f *testing.F) {
	for _, text := range []string{"500m", "64Mi", "2G", "1.5", "1e3", "-1", "1e30", "", "1n", "8Pi", "+.5E", "1e-99"} {
		f.Add(plimsoll.CPU, text)
		f.Add(plimsoll.Memory, text)
		f.Add("nvidia.com/gpu", text)
	}
	f.Fuzz(func(t *testing.T, resource, text string) {
		amount, err := plimsoll.ParseQuantity(resource, text)
		if err != nil {
			return
		}
		if amount < 0 || amount > plimsoll.MaxAmount {
			t.Fatalf("%q of %s is read as %d, out of bounds", text, resource, amount)
		}
		printed := plimsoll.FormatQuantity(resource, amount)
		again, err := plimsoll.ParseQuantity(resource, printed)
		if err != nil || again != amount {
			t.Fatalf("%q of %s is %d, printed %q, read again as %d, %v", text, resource, amount, printed, again, err)
		}
	})
}

func TestResourcesPrintInOrder(t *testing.T) {
	r := plimsoll.Resources{plimsoll.Memory: 64 << 20, plimsoll.CPU: 500, "nvidia.com/gpu": 1}
	if got, want := r.String(), "cpu 500m, memory 64Mi, nvidia.com/gpu 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (plimsoll.Resources{}).String(); got != "nothing" {
		t.Errorf("no resources print as %q", got)
	}
}

func TestResourcesValidate(t *testing.T) {
	many := plimsoll.Resources{}
	for i := range plimsoll.MaxResourceNames + 1 {
		many[string(rune('a'+i))] = 1
	}
	for _, tc := range []struct {
		name  string
		r     plimsoll.Resources
		field string // empty: valid
		want  string
	}{
		{"none at all", nil, "", ""},
		{"the usual ones", plimsoll.Resources{"cpu": 1, "memory": 1, "disk": 0, "nvidia.com/gpu": 8}, "", ""},
		{"the largest", plimsoll.Resources{"memory": plimsoll.MaxAmount}, "", ""},
		{
			"larger than that",
			plimsoll.Resources{"memory": plimsoll.MaxAmount + 1},
			"x.memory",
			"is larger than the largest amount, 8Pi",
		},
		{"negative", plimsoll.Resources{"cpu": -1}, "x.cpu", "is negative (-1)"},
		{"the first in order is reported", plimsoll.Resources{"z": -1, "b": -1, "m": -1}, "x.b", "is negative"},
		{"too many names", many, "x", "has 17 names; at most 16"},
		{"no name", plimsoll.Resources{"": 1}, "x.", "1 to 63 characters"},
		{
			"a long name",
			plimsoll.Resources{strings.Repeat("a", 64): 1},
			"x." + strings.Repeat("a", 64),
			"1 to 63 characters",
		},
		{"a name with a space", plimsoll.Resources{"a b": 1}, "x.a b", "made of letters, digits"},
		{"a name that starts with a dot", plimsoll.Resources{".a": 1}, "x..a", "starts with a letter or digit"},
	} {
		t.Run(tc.name, func(t *testing.T) { wantInvalid(t, tc.r.Validate("x"), tc.field, tc.want) })
	}
}
