package bridge

import (
	"fmt"
	"testing"
)

func TestOfTooManyLabelsThoseAreToldThatClaimsSelectBy(t *testing.T) {
	all := map[string]string{"zone": "a", "team": "x"}
	for i := range 80 {
		all[fmt.Sprintf("%scpu-%02d", labelPrefixFeatures, i)] = "true"
	}
	wanted := labelPrefixFeatures + "cpu-79"
	told := labelsOf(all, map[string]bool{wanted: true, "none": true})
	if len(told) != labelsMax {
		t.Errorf("%d labels", len(told))
	}
	for _, key := range []string{"zone", "team", wanted} {
		if told[key] != all[key] {
			t.Errorf("%s is not told", key)
		}
	}
	few := map[string]string{"zone": "a"}
	if told := labelsOf(few, nil); len(told) != 1 || told["zone"] != "a" {
		t.Errorf("%v", told)
	}
}
