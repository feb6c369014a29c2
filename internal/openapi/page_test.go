package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// TestSwaggerUI: the vendored files are those of swagger-ui-dist 5.35.0, unchanged, with its licenses. To upgrade, copy the files
// out of `npm pack swagger-ui-dist` and put their sums here.
func TestSwaggerUI(t *testing.T) {
	files, err := PageFiles()
	noError(t, err)
	for name, want := range map[string]string{
		"swagger-ui-bundle.js":             "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
		"swagger-ui.css":                   "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
		"swagger-ui.LICENSE.txt":           "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
		"swagger-ui.NOTICE.txt":            "0d20d1adef18aee3f40dd258172155521ce702ac445cb5f7b7d60ed32dad2fb2",
		"swagger-ui-bundle.js.LICENSE.txt": "37eb6e7e59aed57b2c1acf076574b818ea07b74265717e0bd67b59e0baf9abbb",
	} {
		sum := sha256.Sum256(files[name].Body)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s is %s", name, got)
		}
		delete(files, name)
	}
	for name := range files {
		if name != "index.html" && name != "docs.js" && name != "docs.css" {
			t.Errorf("%s is not listed", name)
		}
	}
}
