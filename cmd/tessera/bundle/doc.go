// Package bundle implements the verb support-bundle, which collects what is needed to analyze a cluster later in one archive.
//
// Errors are recorded in the archive and do not end the collection. Secrets are not read; environment values of users' pods are left out.
package bundle
