# stagecraft_page(target): partitioner/page's HTML, style sheet and scripts, joined into one text that `target` holds.
function(stagecraft_page target)
  set(folder ${CMAKE_SOURCE_DIR}/partitioner/page)
  file(GLOB scripts CONFIGURE_DEPENDS ${folder}/*.js)  # in the order of their names
  set(all_scripts)
  foreach(script ${scripts})
    file(READ ${script} text)
    string(APPEND all_scripts "${text}\n")
  endforeach()
  file(READ ${folder}/page.css styles)
  file(READ ${folder}/page.html page)
  string(REPLACE "{{styles}}" "${styles}" page "${page}")
  string(REPLACE "{{scripts}}" "${all_scripts}" page "${page}")
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${folder}/page.css ${folder}/page.html ${scripts})
  set(made ${CMAKE_BINARY_DIR}/generated/page_template.cc)
  configure_file(${folder}/page_template.cc.in ${made} @ONLY)
  target_sources(${target} PRIVATE ${made})
endfunction()
