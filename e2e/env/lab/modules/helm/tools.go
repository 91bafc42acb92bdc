//go:build tools

// Package helm pins the version of Helm that the tests of the chart build and run.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
