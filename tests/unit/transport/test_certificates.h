// A CA and certificates of it as PEM files in a folder of their own, made anew for each test run.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace staffel::testing {

class TestCertificates {
 public:
  TestCertificates() {
    char name[] = "/tmp/staffel-tls-XXXXXX";
    folder_ = mkdtemp(name);
    ca_key_.reset(EVP_EC_gen("P-256"));
    ca_ = Make(ca_key_.get(), "Test CA", nullptr);
    Write("ca.pem", [&](FILE* file) { PEM_write_X509(file, ca_.get()); });
  }
  ~TestCertificates() { std::filesystem::remove_all(folder_); }
  TestCertificates(const TestCertificates&) = delete;

  // Writes NAME.pem and NAME.key, valid for localhost, 127.0.0.1 and ::1.
  void Issue(const std::string& name) {
    const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const Certificate certificate = Make(key.get(), name.c_str(), ca_.get());
    Write(name + ".pem", [&](FILE* file) { PEM_write_X509(file, certificate.get()); });
    Write(name + ".key", [&](FILE* file) {
      PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
  using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

  Certificate Make(EVP_PKEY* key, const char* name, X509* issuer) {
    Certificate made(X509_new(), X509_free);
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 24 * 3600);
    X509_set_pubkey(made.get(), key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    X509_set_issuer_name(made.get(), X509_get_subject_name(issuer ? issuer : made.get()));
    Extend(made.get(), NID_basic_constraints, issuer ? "CA:FALSE" : "critical,CA:TRUE");
    if (issuer) Extend(made.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1");
    X509_sign(made.get(), ca_key_.get(), EVP_sha256());
    return made;
  }
  static void Extend(X509* certificate, int kind, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Put>
  void Write(const std::string& name, Put&& put) {
    FILE* file = fopen(Path(name).c_str(), "w");
    put(file);
    fclose(file);
  }

  std::string folder_;
  long serial_ = 0;
  Key ca_key_{nullptr, EVP_PKEY_free};
  Certificate ca_{nullptr, X509_free};
};

}  // namespace staffel::testing
